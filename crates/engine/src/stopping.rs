//! Phases of stopping a run.

use std::time::Duration;

use packhorse_core::SchedulerEvent;
use packhorse_model::{EventKind, Phase, RunId, StopMode};

use crate::action::Action;
use crate::engine::Engine;
use crate::input::StopSignal;
use crate::task::Task;

/// For so long, a repeated SIGTERM or SIGHUP is taken for the same request.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// What a signal makes of a phase. Ctrl-C goes one step on, Ctrl-\ all the way; the others
/// go at least as far as asking what runs to end.
fn after(phase: Phase, signal: StopSignal) -> Phase {
    let next = match phase {
        Phase::Running => Phase::Draining,
        Phase::Draining => Phase::Terminating,
        Phase::Terminating | Phase::Killing => Phase::Killing,
    };
    match signal {
        StopSignal::Interrupt => next,
        StopSignal::Terminate | StopSignal::Hangup | StopSignal::TimeOver => {
            next.max(Phase::Terminating)
        }
        StopSignal::Quit => Phase::Killing,
    }
}

impl Engine {
    pub(crate) fn stop_run(&mut self, id: RunId, signal: StopSignal) {
        let now = self.now.monotonic;
        let alive = self.tasks_of(id, Task::is_alive);
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        // `timeout` and service managers send the same signal to us and to our group:
        // that is one request, not two.
        let typed = matches!(signal, StopSignal::Interrupt | StopSignal::Quit);
        let again = run.phase >= Phase::Terminating && !typed;
        let is_same = again && now.saturating_sub(run.stepped) < SAME_REQUEST;
        // What somebody has asked for outranks the end of the time: whoever sees how it ended
        // is not to go on with what is left.
        let outranks = match run.signal {
            None | Some(StopSignal::TimeOver) => true,
            Some(_) => signal != StopSignal::TimeOver && !is_same,
        };
        if outranks {
            run.signal = Some(signal);
        }
        if is_same {
            return;
        }
        run.stepped = now;
        if run.phase == Phase::Killing {
            // They were killed before, and are still there.
            for task in alive {
                self.act(Action::Abandon(task));
            }
            return;
        }
        let phase = after(run.phase, signal);
        run.phase = phase;
        self.step(SchedulerEvent::HoldRun(id));
        // Nobody else is to wait for the rest of its input.
        self.end_arrival(id);
        self.hand_over_probes(id);
        let mode = match phase {
            Phase::Running | Phase::Draining => None,
            Phase::Terminating => Some(StopMode::Terminate),
            Phase::Killing => Some(StopMode::Kill),
        };
        let running = alive.len() as u64;
        for task in alive {
            if let Some(mode) = mode {
                self.stop_attempt(task, mode);
            }
        }
        self.tell(EventKind::Stopping { run: id, phase, running });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_c_goes_one_step_on_each_time() {
        let mut phase = Phase::Running;
        for wanted in [Phase::Draining, Phase::Terminating, Phase::Killing, Phase::Killing] {
            phase = after(phase, StopSignal::Interrupt);
            assert_eq!(phase, wanted);
        }
    }

    #[test]
    fn sigterm_does_not_wait_for_what_runs() {
        let terminate = StopSignal::Terminate;
        assert_eq!(after(Phase::Running, terminate), Phase::Terminating);
        assert_eq!(after(Phase::Draining, StopSignal::Hangup), Phase::Terminating);
        assert_eq!(after(Phase::Terminating, terminate), Phase::Killing);
    }
}
