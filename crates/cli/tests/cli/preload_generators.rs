//! Generators of preloaded libraries draw what they draw in a Python of the task's own.

use packhorse_test_parts::needs;
use serde_json::{Value, json};

use crate::support::World;

/// Three tasks that print a JSON object each: two are copies of a Python with these modules,
/// one has a Python of its own.
fn draw(world: &World, modules: &str, script: &str) -> Vec<Value> {
    world.write("draw.py", script);
    let task = json!({"command": ["/usr/bin/python3", "draw.py"]});
    let mut copy = task.clone();
    copy["preload"] = json!([modules]);
    let lines = format!("{copy}\n{copy}\n{task}\n");
    let done = world.packhorse_with(["run", "--slots", "3", "--tasks", "-"], lines);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("warning"), "{done:?}");
    let drawn = (1..=3).map(|task| world.packhorse(["logs", &format!("1.{task}")]).json());
    drawn.collect()
}

/// What is drawn under a name that begins with `fresh` differs from task to task; all else is
/// the same.
fn check(drawn: &[Value]) {
    for name in drawn[0].as_object().unwrap().keys() {
        let mut values: Vec<String> = drawn.iter().map(|all| all[name].to_string()).collect();
        values.sort_unstable();
        values.dedup();
        let wanted = if name.starts_with("fresh") { drawn.len() } else { 1 };
        assert_eq!(values.len(), wanted, "{name}: {drawn:?}");
    }
}

/// A training as it is in the first lesson of a course.
const TRAIN: &str = "
def train():
    net = torch.nn.Linear(4, 1)
    rows = torch.randn(32, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(5):
        loss = ((net(rows) - rows.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()
";

#[test]
fn trainings_without_a_seed_differ_and_those_with_one_do_not() {
    needs!(Torch);
    let world = World::new();
    let script = format!(
        "import json, random, torch, numpy as np\n{TRAIN}
drawn = dict(fresh=train(), fresh_numpy=np.random.rand(), fresh_random=random.random())
torch.manual_seed(5); np.random.seed(5); random.seed(5)
drawn.update(train=train(), numpy=np.random.randn(), random=random.gauss(0, 1))
drawn.update(cuda=torch.cuda.is_initialized(), own=torch.rand(1, generator=torch.Generator()).item())
print(json.dumps(drawn))"
    );
    check(&draw(&world, "torch", &script));
}

/// A module of a project, with what such modules do when they are imported.
const HEAVY: &str = "
import copy, pickle
import numpy as np, torch
from numpy.random import default_rng

fresh = [
    default_rng(), np.random.Generator(np.random.Philox()), np.random.RandomState(),
    np.random.Generator(np.random.SFC64()),
]
sequence = np.random.SeedSequence()
fresh += [default_rng(child) for child in sequence.spawn(2)]
fresh.append(np.random.Generator(fresh[0].bit_generator.jumped()))
half = np.random.RandomState()
half.standard_normal()
np.random.standard_normal()
number = 0xdcba9876543210fedcba9876543210
fixed = [default_rng(3), default_rng(number), np.random.RandomState(3)]
fixed[0].random(), fixed[2].standard_normal()

def given(generator, state):
    generator.bit_generator.state = state
    return generator

def copies(of):
    state = of.bit_generator.state
    jumped = np.random.Generator(of.bit_generator.jumped())
    return [copy.deepcopy(of), pickle.loads(pickle.dumps(of)), jumped, given(default_rng(4), state)]

def legacy(of, seed):
    copied = np.random.RandomState(4)
    copied.set_state(of.get_state())
    of.seed(seed)
    return [copy.deepcopy(of), copied]

fresh += copies(default_rng())
fresh += legacy(np.random.RandomState(3), None)[:1] + legacy(np.random.RandomState(), 3)[1:]
fixed += copies(default_rng(5)) + [given(default_rng(), default_rng(6).bit_generator.state)]
fixed += legacy(np.random.RandomState(), 7)[:1] + legacy(np.random.RandomState(8), None)[1:]

own = [torch.Generator(), torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)]
own[2].seed()
own[2].manual_seed(0xdcba9876543210)
def with_state(of):
    torch.rand(1, generator=of)
    return torch.Generator().set_state(of.get_state())
own.append(with_state(own[1]))
own_fresh = [torch.Generator(), torch.Generator().manual_seed(3)]
own_fresh[0].seed(), own_fresh[1].seed()
again = torch.Generator()
again.seed()
own_fresh.append(with_state(again))
";

#[test]
fn generators_that_a_module_makes_have_a_seed_or_none() {
    needs!(Torch);
    let world = World::new();
    world.write("heavy.py", HEAVY);
    let script = "
import heavy, json, numpy as np, torch
drawn = {f'fresh {n}': it.random() for n, it in enumerate(heavy.fresh) if hasattr(it, 'random')}
drawn.update({f'fixed {n}': it.standard_normal() for n, it in enumerate(heavy.fixed)})
drawn['fresh half'] = heavy.half.standard_normal()
drawn['fresh global'] = np.random.standard_normal()
drawn['fresh child'] = heavy.default_rng(heavy.sequence.spawn(1)[0]).random()
drawn['torch'] = [torch.rand(1, generator=it).item() for it in heavy.own]
drawn.update({f'fresh torch {n}': torch.rand(1, generator=it).item() for n, it in enumerate(heavy.own_fresh)})
drawn['fresh torch'] = torch.rand(1).item()
print(json.dumps(drawn))";
    let drawn = draw(&world, "heavy", script);
    check(&drawn);
    let fresh = drawn[0].as_object().unwrap().iter().filter(|(name, _)| name.starts_with("fresh"));
    let mut fresh: Vec<String> = fresh.map(|(_, value)| value.to_string()).collect();
    let count = fresh.len();
    fresh.sort_unstable();
    fresh.dedup();
    assert_eq!(fresh.len(), count - 2, "only three copies of one are alike: {drawn:?}");
}

#[test]
fn a_seed_that_a_module_sets_is_that_of_every_task() {
    needs!(Torch);
    let script = "
import heavy, json, numpy as np, random, torch
print(json.dumps({name: draw() for name, draw in heavy.draws.items()}))";
    let draws = "
draws = dict(random=random.random, numpy=np.random.standard_normal, torch=lambda: torch.rand(1).item())
";
    let world = World::new();
    let seeds = "
import numpy as np, random, torch
random.seed(1); np.random.seed(2); torch.manual_seed(3); torch.cuda.manual_seed_all(3)
random.random(); np.random.standard_normal(); torch.randn(1)";
    world.write("heavy.py", format!("{seeds}\n{draws}"));
    check(&draw(&world, "heavy", script));

    let world = World::new();
    let seeds = "
import numpy as np, random, torch
random.setstate(random.Random(1).getstate())
np.random.set_state(np.random.RandomState(2).get_state())
torch.set_rng_state(torch.Generator().manual_seed(3).get_state())";
    world.write("heavy.py", format!("{seeds}\n{draws}"));
    check(&draw(&world, "heavy", script));

    // A seed of none takes one back.
    let world = World::new();
    let seeds = "
import numpy as np, random, torch
random.seed(1); np.random.seed(2); torch.manual_seed(3)
random.seed(); np.random.seed(None); torch.seed()
random.random(); np.random.standard_normal(); torch.randn(1)";
    let draws = draws.replace("dict(", "dict(fresh_").replace(", ", ", fresh_");
    world.write("heavy.py", format!("{seeds}\n{draws}"));
    check(&draw(&world, "heavy", script));
}
