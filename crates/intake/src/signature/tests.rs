use std::path::Path;

use packhorse_model::Command;
use proptest::prelude::*;

use super::signature;

fn shape(line: &str) -> String {
    signature(&Command::Line(line.into()), Path::new("/home/me/proj"))
}

#[test]
fn the_shape_of_commands_as_people_write_them() {
    for (line, wanted) in [
        ("python train.py", "proj: python train.py"),
        ("python train.py --lr 0.1", "proj: python train.py --lr"),
        ("python train.py --lr=1e-3", "proj: python train.py --lr"),
        (
            "python train.py --betas 0.9 0.999 x",
            "proj: python train.py --betas x",
        ),
        ("train -n5 -j 8", "proj: train -n -j"),
        ("train -b32", "proj: train -b 32"),
        ("train --temp -1 --x", "proj: train --temp --x"),
        ("train --amp true --fp16", "proj: train --amp true --fp16"),
        (
            "python main.py lr=0.1 +opt.wd=1e-4 model=vit_b_16",
            "proj: python main.py lr= +opt.wd= model=vit_b_16",
        ),
        (
            "train --model resnet50 --data=cifar10",
            "proj: train --model resnet50 --data cifar10",
        ),
        (
            "train --batch-size 32 --hidden 64 128 --width 0.5",
            "proj: train --batch-size 32 --hidden 64 128 --width",
        ),
        ("train model.layers=12", "proj: train model.layers=12"),
        (
            "train --seed 3 --name best --output-dir out/x --gpu 2",
            "proj: train --seed --name --output-dir --gpu",
        ),
        (
            "train --resume out/run_17",
            "proj: train --resume out/run_#",
        ),
        ("train --day 2024-05-01", "proj: train --day"),
        ("train --device cuda:1", "proj: train --device cuda:#"),
        ("train out/lr=0.1/a", "proj: train out/lr=#.#/a"),
        ("train 5 0.1 a 7", "proj: train # a #"),
        (
            "train --prompt 'a  big\ncat'",
            "proj: train --prompt 'a big cat'",
        ),
        (
            "train --cfg '{\"lr\": 0.1}'",
            "proj: train --cfg '{\"lr\": #}'",
        ),
        (
            "train /data/sets/imagenet ~/a/b/c ./d e/f/g",
            "proj: train sets/imagenet b/c d e/f/g",
        ),
        ("train -- --lr 3", "proj: train -- --lr"),
        ("train - ''", "proj: train - "),
    ] {
        assert_eq!(shape(line), wanted, "{line}");
    }
}

#[test]
fn what_only_surrounds_the_work_is_left_out() {
    for (line, wanted) in [
        (
            "CUDA_LAUNCH_BLOCKING=1 SEED=3 python a.py",
            "proj: python a.py",
        ),
        (
            "MODEL=vit BATCH_SIZE=8 ./run.sh",
            "proj: MODEL=vit BATCH_SIZE=8 run.sh",
        ),
        ("cd sub/dir && python a.py", "dir: python a.py"),
        ("cd ../other; python a.py", "other: python a.py"),
        ("cd sub/.. && cd ./ && python a.py", "proj: python a.py"),
        ("(cd runs/run_17 && ./a)", "run_#: a"),
        ("cd; python a.py", "proj: python a.py"),
        (
            "source venv/bin/activate && conda activate x && mkdir -p out && python a.py",
            "proj: python a.py",
        ),
        (
            "python a.py --lr 1 2>&1 | tee run_3.log",
            "proj: python a.py --lr",
        ),
        ("python a.py > out_3.log", "proj: python a.py"),
        ("python a.py; python b.py", "proj: python a.py; python b.py"),
        (
            "for i in 1 2; do python a.py $i; done",
            "proj: python a.py $i",
        ),
        ("if true; then ./a; fi", "proj: a"),
        ("nohup nice -n 10 python a.py &", "proj: python a.py"),
        ("timeout -k 5 2h python a.py", "proj: python a.py"),
        ("time -p env A=1 B=b python a.py", "proj: B=b python a.py"),
        ("/usr/bin/env python3 a.py", "proj: python a.py"),
        ("uv run a.py --lr 1", "proj: a.py --lr"),
        ("uv run --with x a.py", "proj: uv run --with x a.py"),
        (
            "/home/me/venv/bin/python3.11 -u -m pkg.mod",
            "proj: python -u -m pkg.mod",
        ),
        ("/opt/tools/solve_2 x", "proj: solve_2 x"),
        (
            "bash -lc 'cd x && python a.py --lr 2'",
            "x: python a.py --lr",
        ),
        (
            "A=b sh -c \"sh -c 'python a.py --lr 2'\"",
            "proj: A=b python a.py --lr",
        ),
        ("bash run.sh 5", "proj: bash run.sh #"),
        (
            "torchrun --nproc_per_node 2 --master_port 1234 train.py --lr 1",
            "proj: torchrun --nproc_per_node 2 --master_port train.py --lr",
        ),
        (
            "accelerate launch --num_processes 4 train.py",
            "proj: accelerate launch --num_processes train.py",
        ),
    ] {
        assert_eq!(shape(line), wanted, "{line}");
    }
}

#[test]
fn a_command_that_does_nothing_else_is_its_own_shape() {
    for (line, wanted) in [
        ("sleep 10", "proj: sleep #"),
        ("echo a && sleep 1", "proj: echo a; sleep #"),
        ("time", "proj: time"),
        ("A=1", "proj: A=#"),
        ("bash -c", "proj: bash -c"),
        ("", "proj: "),
    ] {
        assert_eq!(shape(line), wanted, "{line}");
    }
}

#[test]
fn words_are_taken_as_they_are() {
    let words = |words: &[&str]| Command::Words(words.iter().map(|w| (*w).into()).collect());
    let folder = Path::new("code1");
    let csv = words(&["/usr/bin/python3", "code1.py", "--epochs=90", "--id=17"]);
    assert_eq!(
        signature(&csv, folder),
        "code1: python code1.py --epochs --id"
    );
    let odd = words(&["a;b", "> c", "--x y|z"]);
    assert_eq!(signature(&odd, folder), "code1: a;b '> c' '--x y|z'");
    let inner = words(&["sh", "-c", "python a.py | tee x"]);
    assert_eq!(signature(&inner, folder), "code1: python a.py");
}

#[test]
fn without_a_folder_the_command_stands_alone() {
    let command = Command::Line(b"a b".to_vec());
    assert_eq!(signature(&command, Path::new("/")), "a b");
}

/// Peaks in a store were written under these names: they must not change.
#[test]
fn a_long_shape_is_cut_and_told_apart_by_its_end() {
    let long = |end: &str| shape(&format!("train {} {end}", "--some-flag text".repeat(30)));
    let cut = long("a");
    assert_eq!(cut.len(), 200);
    assert!(cut.starts_with("proj: train --some-flag text"), "{cut}");
    assert!(cut.ends_with("…18bc68ad0dac0fe9"), "{cut}");
    assert_ne!(long("a"), long("b"));
}

#[test]
fn a_signature_can_be_printed() {
    let found = signature(
        &Command::Line(b"a \x1b[2J\xff 'b\nc'".to_vec()),
        Path::new("/x\n"),
    );
    assert!(!found.contains(|c: char| c.is_control()), "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_sweep_over_numbers_has_one_shape(lr in any::<f64>(), seed in any::<u64>(), n in -9_i64..99999) {
        let line = format!("python t.py --lr {lr} seed={seed} -n {n} {n} --wd={lr:e} out/run_{seed}");
        prop_assert_eq!(shape(&line), "proj: python t.py --lr seed= -n --wd out/run_#");
    }
}
