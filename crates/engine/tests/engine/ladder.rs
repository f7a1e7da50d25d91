//! Running out of memory: more of it, alone, a larger GPU, over.

use packhorse_engine::OomSigns;
use packhorse_model::{Exit, Outcome};

use crate::lab::{A_LOOK, FAILED, Lab, OK, SECOND, id, task};

const CUDA: &str = "torch.cuda.OutOfMemoryError: CUDA out of memory.";

fn lab(sizes: &[u64], memory: u64) -> Lab {
    let mut lab = Lab::with_memory(sizes);
    lab.run(1);
    lab.add(1, [task("python a.py").vram(memory)]);
    lab.end_input(1);
    lab.logs.insert(id("1.1"), CUDA.to_owned());
    lab
}

#[test]
fn it_gets_half_as_much_again() {
    let mut lab = lab(&[24], 8);
    lab.holds("1.1", 8);
    lab.ends("1.1", FAILED);
    lab.assert_told("it runs again with 12.0 GiB");
    lab.pass(A_LOOK);
    assert!((lab.promised("1.1") - 12.0).abs() < 0.1);
    lab.ends("1.1", OK);
    assert_eq!(lab.summary(1).exit, Exit::Success);
}

#[test]
fn what_was_seen_counts_if_that_is_more() {
    let mut lab = lab(&[24], 4);
    lab.holds("1.1", 16);
    lab.ends("1.1", FAILED);
    lab.assert_told("it runs again with 20.0 GiB");
}

#[test]
fn then_it_has_a_gpu_to_itself_and_then_it_is_over() {
    let mut lab = lab(&[24], 20);
    lab.holds("1.1", 20);
    lab.ends("1.1", FAILED);
    lab.assert_told("it runs again with a GPU to itself");
    lab.pass(A_LOOK);
    lab.holds("1.1", 24);
    lab.ends("1.1", FAILED);
    lab.assert_told("finished 1.1: exit status 1 out of GPU memory (PyTorch");
    assert_eq!(lab.started().len(), 2);
}

#[test]
fn what_filled_a_gpu_that_nobody_else_was_on_is_not_tried_alone_there() {
    let asked = format!("{CUDA} Tried to allocate 6.00 GiB.");
    // By what it asked for, by how little was free, and neither.
    for (log, held, over) in [(&*asked, 20, true), (CUDA, 23, true), (CUDA, 20, false)] {
        let mut lab = lab(&[24], 20);
        lab.logs.insert(id("1.1"), log.to_owned());
        lab.holds("1.1", held);
        lab.ends("1.1", FAILED);
        if over {
            lab.assert_told("with a GPU to itself");
            assert_eq!(lab.summary(1).exit, Exit::TasksFailed);
        } else {
            lab.assert_told("it runs again with a GPU to itself");
        }
    }
}

#[test]
fn what_filled_a_gpu_alone_goes_to_a_larger_one() {
    let mut lab = lab(&[24, 25], 20);
    assert_eq!(lab.running(), ["1.1@0"]);
    lab.holds("1.1", 23);
    lab.ends("1.1", FAILED);
    lab.assert_told("with a GPU to itself; it runs again");
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.1@1"]);
}

#[test]
fn with_a_neighbour_it_is_tried_alone_whatever_it_asked_for() {
    let mut lab = lab(&[24], 12);
    lab.add(1, [task("python b.py").vram(8)]);
    lab.logs.insert(id("1.1"), format!("{CUDA} Tried to allocate 20.00 GiB."));
    lab.holds("1.2", 8);
    lab.holds("1.1", 12);
    lab.ends("1.1", FAILED);
    lab.assert_told("it runs again with a GPU to itself");
}

#[test]
fn a_neighbour_that_may_have_taken_the_rest_is_one() {
    let mut lab = lab(&[24], 20);
    lab.add(1, [task("python b.py").vram(2)]);
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"]);
    lab.holds("1.1", 23);
    lab.ends("1.1", FAILED);
    lab.assert_told("it runs again with a GPU to itself");
}

#[test]
fn after_being_alone_it_goes_to_a_larger_gpu() {
    let mut lab = lab(&[24, 80], 8);
    // It starts on the smaller one.
    for _ in 0..8 {
        if lab.running() == ["1.1@1"] {
            break;
        }
        lab.holds("1.1", 20);
        lab.ends("1.1", FAILED);
        lab.pass(A_LOOK);
    }
    assert_eq!(lab.running(), ["1.1@1"]);
    lab.ends("1.1", OK);
    assert_eq!(lab.summary(1).exit, Exit::Success);
}

#[test]
fn no_retry_is_used_up() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("python a.py").vram(8).retries(1)]);
    lab.logs.insert(id("1.1"), CUDA.to_owned());
    lab.ends("1.1", FAILED);
    lab.assert_told("retrying 1.1#1, 1 left");
    lab.logs.clear();
    lab.ends("1.1", FAILED);
    lab.assert_told("retrying 1.1#2, 0 left");
}

#[test]
fn an_exit_status_of_the_persons_own_is_a_sign() {
    let signs = OomSigns::parse(std::path::Path::new("signs"), "exit 42\n").unwrap();
    let mut lab = Lab::built(&[24], None, |settings| settings.oom_signs = signs);
    lab.run(1);
    lab.add(1, [task("python a.py").vram(8)]);
    lab.ends("1.1", Outcome::Failed { code: 42 });
    lab.assert_told("out of GPU memory (exit status 42)");
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn one_that_never_asked_for_memory_is_counted_from_then_on() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a").share(500), task("b").share(500)]);
    lab.logs.insert(id("1.1"), CUDA.to_owned());
    lab.ends("1.1", FAILED);
    lab.assert_told("it runs again with a GPU to itself");
    assert_eq!(lab.running(), ["1.2@0"], "it waits for the other to leave");
    lab.ends("1.2", OK);
    assert_eq!(lab.running(), ["1.1@0"]);
    assert_eq!(lab.engine.tracked_on(0), [id("1.1")]);
}

#[test]
fn what_others_like_it_teach_does_not_take_it_down_again() {
    let mut lab = Lab::with_gpus(1);
    lab.learned("work: python a.py", 4);
    lab.run(1);
    lab.add(1, vec![task("python a.py").vram_auto(); 2]);
    lab.add(1, [task("whole").gpus(1).priority(-1)]);
    lab.logs.insert(id("1.1"), CUDA.to_owned());
    lab.holds("1.1", 4);
    lab.holds("1.2", 4);
    lab.ends("1.1", FAILED);
    lab.ends("1.2", OK);
    lab.pass(A_LOOK);
    lab.ends("1.3", OK);
    assert!(lab.promised("1.1") > 6.0);
}

#[test]
fn an_end_is_not_judged_before_its_log_was_read() {
    let mut lab = lab(&[24], 8);
    lab.answers.questions = false;
    lab.told();
    lab.ends("1.1", FAILED);
    lab.pass(SECOND * 10);
    assert!(lab.told().is_empty(), "it may have run out of memory");
    assert!(!lab.is_over(1));
    lab.answer_next();
    lab.assert_told("it runs again with 12.0 GiB");
}

#[test]
fn an_end_is_judged_without_a_look_when_the_driver_takes_too_long() {
    let mut lab = lab(&[24], 8);
    lab.pass(A_LOOK / 2);
    lab.answers.samples = false;
    lab.told();
    lab.ends("1.1", FAILED);
    lab.pass(SECOND);
    assert!(lab.told().is_empty());
    lab.pass(SECOND);
    lab.assert_told("it runs again with 12.0 GiB");
}

#[test]
fn what_it_was_seen_to_need_is_written_down() {
    let mut lab = lab(&[24], 8);
    lab.holds("1.1", 6);
    lab.ends("1.1", OK);
    let peaks = lab.records.iter().filter_map(|(_, entry)| match entry {
        packhorse_model::Record::Peak(peak) => Some(peak.learned.peak),
        _ => None,
    });
    assert_eq!(peaks.collect::<Vec<_>>(), [crate::lab::gib(6)]);
    lab.assert_told("measured 1.1 at 6.0 GiB");
}
