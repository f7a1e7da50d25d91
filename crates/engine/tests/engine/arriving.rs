//! Tasks for which something has to be looked up before they are in line.

use crate::lab::{Lab, OK, task};

#[test]
fn the_most_urgent_goes_first_also_when_different_things_are_looked_up() {
    let mut lab = Lab::with_gpus(1);
    lab.answers.questions = false;
    lab.run(1);
    lab.add(1, [task("python a.py").vram_auto(), task("python b.py").vram_auto().priority(-5)]);
    lab.answer_next();
    assert_eq!(lab.running(), [""; 0], "not all of them are in line");
    lab.answer_next();
    assert_eq!(lab.running(), ["1.2@0"]);
    lab.ends("1.2", OK);
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn one_that_waits_for_an_answer_does_not_keep_later_ones_from_being_held() {
    let mut lab = Lab::with_gpus(1);
    lab.answers.questions = false;
    lab.run(1);
    lab.add_some(1, [task("python a.py").vram_auto()], true);
    lab.answer_next();
    assert_eq!(lab.running(), [""; 0], "more follow");
    lab.add(1, [task("python a.py").vram_auto().priority(-5)]);
    assert_eq!(lab.running(), ["1.2@0"]);
}
