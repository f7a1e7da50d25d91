use packhorse_model::{GpuRequest, Milli, Request};

use super::*;
use crate::plan::PlanTask;
use crate::plan::tests::{plan, submission};

fn task(number: u32, gpus: GpuRequest, minutes: Option<u64>) -> PlanTask {
    let request = Request { gpus, ..Request::default() };
    let submission = submission(number, request);
    PlanTask {
        id: submission.id,
        submission: submission.into(),
        lasts: minutes.map(Duration::from_mins),
    }
}

fn chart(gpus: u32, tasks: Vec<PlanTask>, width: usize, glyphs: Glyphs) -> String {
    let plan = plan(gpus, tasks);
    let gantt = Gantt {
        plan: &plan,
        width,
        glyphs,
        device_name: &|device| format!("GPU {}", device.0),
        task_name: &|task| match task.number {
            7 => "\x1b[31mnäme 名前 that is far too long".to_owned(),
            number => number.to_string(),
        },
    };
    gantt.to_string()
}

fn mixed() -> Vec<PlanTask> {
    vec![
        task(1, GpuRequest::Share(Milli(500)), Some(60)),
        task(2, GpuRequest::Share(Milli(500)), Some(90)),
        task(3, GpuRequest::Whole(1), Some(120)),
        task(4, GpuRequest::Whole(2), None),
        task(5, GpuRequest::None, Some(45)),
        task(7, GpuRequest::Share(Milli(500)), Some(30)),
    ]
}

#[test]
fn tasks_that_share_a_gpu_have_rows_of_their_own() {
    insta::assert_snapshot!(chart(2, mixed(), 60, Glyphs::UNICODE), @r"
            0             1h             2h             3h
    GPU 0   ┣1━━━━━━━━━━━┫               ┣4┅┅┅┅┅┅┅┅┅┅┅┅┫┣[31mnä┫
            ┣2━━━━━━━━━━━━━━━━━━━┫
    GPU 1   ┣3━━━━━━━━━━━━━━━━━━━━━━━━━━┫┣4┅┅┅┅┅┅┅┅┅┅┅┅┫
    no GPU  ┣5━━━━━━━━┫
    how long 1 of 6 will take is not known (┅┅┅): 1h each is assumed, the median of the others
    expected end: in about 3h30m
    ");
}

#[test]
fn the_same_without_unicode() {
    insta::assert_snapshot!(chart(2, mixed(), 60, Glyphs::ASCII), @r"
            0             1h             2h             3h
    GPU 0   [1===========]               [4~~~~~~~~~~~~][[31mnä]
            [2===================]
    GPU 1   [3==========================][4~~~~~~~~~~~~]
    no GPU  [5========]
    how long 1 of 6 will take is not known (~~~): 1h each is assumed, the median of the others
    expected end: in about 3h30m
    ");
}

fn many() -> Vec<PlanTask> {
    let tenth = GpuRequest::Share(Milli(100));
    (1..=55).map(|number| task(number, tenth, Some(10))).collect()
}

#[test]
fn many_tasks_are_shown_by_how_many_run_at_once() {
    insta::assert_snapshot!(chart(2, many(), 40, Glyphs::UNICODE), @r"
           0               15m
    GPU 0  ██████████████████████▆▆▆▆▆▆▆▆▆▆▆
    GPU 1  ██████████████████████▆▆▆▆▆▆▆▆▆▆▆
    the higher a column, the more tasks run there at once; at most 10
    expected end: in at most 30m
    ");
    insta::assert_snapshot!(chart(2, many(), 40, Glyphs::ASCII), @r"
           0               15m
    GPU 0  @@@@@@@@@@@@@@@@@@@@@@***********
    GPU 1  @@@@@@@@@@@@@@@@@@@@@@***********
    the denser a column, the more tasks run there at once; at most 10
    expected end: in at most 30m
    ");
}

#[test]
fn bars_too_narrow_to_tell_apart_are_not_drawn() {
    let jobs = (1..=40).map(|number| task(number, GpuRequest::Whole(1), Some(10)));
    insta::assert_snapshot!(chart(1, jobs.collect(), 30, Glyphs::ASCII), @r"
           0                   6h
    GPU 0  @@@@@@@@@@@@@@@@@@@@@@@
    the denser a column, the more tasks run there at once; at most 1
    expected end: in at most 6h40m
    ");
}

#[test]
fn nothing_known_is_told_in_rounds() {
    let jobs = (1..=3).map(|number| task(number, GpuRequest::Whole(1), None));
    insta::assert_snapshot!(chart(2, jobs.collect(), 40, Glyphs::UNICODE), @r"
           0               1
    GPU 0  ┣1┅┅┅┅┅┅┅┅┅┅┅┅┅┫┣3┅┅┅┅┅┅┅┅┅┅┅┅┅┅┫
    GPU 1  ┣2┅┅┅┅┅┅┅┅┅┅┅┅┅┫
    how long they will take is not known (┅┅┅): all are assumed to be equally long, which makes a round
    expected end: after 2 rounds
    ");
}

#[test]
fn nothing_to_do_is_no_trouble() {
    insta::assert_snapshot!(chart(2, vec![], 40, Glyphs::UNICODE), @r"
           0
    GPU 0
    GPU 1
    nothing would run
    ");
}

#[test]
fn what_could_not_run_is_named() {
    let jobs = (1..=7).map(|number| task(number, GpuRequest::Whole(3), None));
    insta::assert_snapshot!(chart(1, jobs.collect(), 40, Glyphs::ASCII), @r"
           0
    GPU 0
    how long they will take is not known (~~~): all are assumed to be equally long, which makes a round
    would be refused: 1, 2, 3, 4, 5 and 2 more
    nothing would run
    ");
}

#[test]
fn no_line_is_wider_than_asked_for() {
    for width in [24, 33, 60, 61, 80, 200] {
        let text = chart(3, mixed(), width, Glyphs::UNICODE);
        let lines = text.lines().filter(|line| line.starts_with("GPU"));
        for line in lines {
            assert!(line.width() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn a_name_is_cut_by_what_it_takes_on_the_screen() {
    assert_eq!(cut("❤\u{fe0f} of it", 2), "❤\u{fe0f}");
    assert_eq!(cut("❤\u{fe0f} of it", 1), "❤");
    assert_eq!(cut("名前", 3), "名");
}
