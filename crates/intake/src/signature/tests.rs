use std::collections::BTreeMap;
use std::path::Path;

use packhorse_model::{ByteString, Command};
use proptest::prelude::*;

use super::{Signature, SignatureDraft, is_member};

fn draft(line: &str) -> SignatureDraft {
    let command = Command::Line(line.into());
    SignatureDraft::new(&command, &BTreeMap::new(), Path::new("/home/me/proj"))
}

fn signature(command: &Command, folder: &Path) -> String {
    let draft = SignatureDraft::new(command, &BTreeMap::new(), folder);
    draft.finish(&[]).name
}

fn shape(line: &str) -> String {
    draft(line).finish(&[]).name
}

/// What the line is remembered by if all its files have this in them.
fn with_content(line: &str, content: u64) -> Signature {
    let draft = draft(line);
    let contents = vec![Some(content << 32); draft.files().len()];
    draft.finish(&contents)
}

/// The files that a line's signature depends on.
fn files(line: &str) -> Vec<String> {
    let draft = draft(line);
    let files = draft.files().iter();
    files.map(|file| file.display().to_string()).collect()
}

#[test]
fn the_shape_of_commands_as_people_write_them() {
    for (line, wanted) in [
        ("python train.py", "proj: python train.py"),
        ("python train.py --lr 0.1", "proj: python train.py --lr"),
        ("python train.py --lr=1e-3", "proj: python train.py --lr"),
        ("python train.py --betas 0.9 0.999 x", "proj: python train.py --betas x"),
        ("train -n5 -j 8", "proj: train -n -j"),
        ("train -b32", "proj: train -b 32"),
        ("train --temp -1 --x", "proj: train --temp --x"),
        ("train --amp true --fp16", "proj: train --amp true --fp16"),
        (
            "python main.py lr=0.1 +opt.wd=1e-4 model=vit_b_16",
            "proj: python main.py lr= +opt.wd= model=vit_b_16",
        ),
        ("train --model resnet50 --data=cifar10", "proj: train --model resnet50 --data cifar10"),
        (
            "train --batch-size 32 --hidden 64 128 --width 0.5",
            "proj: train --batch-size 32 --hidden 64 128 --width",
        ),
        ("train model.layers=12", "proj: train model.layers=12"),
        (
            "train --seed 3 --name best --output-dir out/x --gpu 2",
            "proj: train --seed --name --output-dir --gpu",
        ),
        ("train --resume out/run_17", "proj: train --resume out/run_#"),
        ("train --day 2024-05-01", "proj: train --day"),
        ("train --device cuda:1", "proj: train --device cuda:#"),
        ("train out/lr=0.1/a", "proj: train out/lr=#.#/a"),
        ("train 5 0.1 a 7", "proj: train # a # [5 0.1 7]"),
        ("train --prompt 'a  big\ncat'", "proj: train --prompt 'a big cat'"),
        ("train --cfg '{\"lr\": 0.1}'", "proj: train --cfg '{\"lr\": #}'"),
        ("train /data/sets/imagenet ~/a/b/c ./d e/f/g", "proj: train sets/imagenet b/c d e/f/g"),
        ("train -- --lr 3", "proj: train -- --lr"),
        ("train - ''", "proj: train - "),
    ] {
        assert_eq!(shape(line), wanted, "{line}");
    }
}

#[test]
fn what_only_surrounds_the_work_is_left_out() {
    for (line, wanted) in [
        ("CUDA_LAUNCH_BLOCKING=1 SEED=3 python a.py", "proj: python a.py"),
        ("MODEL=vit BATCH_SIZE=8 ./run.sh", "proj: MODEL=vit BATCH_SIZE=8 run.sh"),
        ("cd sub/dir && python a.py", "dir: python a.py"),
        ("cd ../other; python a.py", "other: python a.py"),
        ("cd sub/.. && cd ./ && python a.py", "proj: python a.py"),
        ("(cd runs/run_17 && ./a)", "run_#: a"),
        ("cd; python a.py", "proj: python a.py"),
        (
            "source venv/bin/activate && conda activate x && mkdir -p out && python a.py",
            "proj: python a.py",
        ),
        ("python a.py --lr 1 2>&1 | tee run_3.log", "proj: python a.py --lr"),
        ("python a.py > out_3.log", "proj: python a.py"),
        ("python a.py; python b.py", "proj: python a.py; python b.py"),
        ("for i in 1 2; do python a.py $i; done", "proj: python a.py $i"),
        ("if true; then ./a; fi", "proj: a"),
        ("nohup nice -n 10 python a.py &", "proj: python a.py"),
        ("timeout -k 5 2h python a.py", "proj: python a.py"),
        ("time -p env A=1 B=b python a.py", "proj: B=b python a.py"),
        ("/usr/bin/env python3 a.py", "proj: python a.py"),
        ("uv run a.py --lr 1", "proj: a.py --lr"),
        ("uv run --with x a.py", "proj: uv run --with x a.py"),
        ("/home/me/venv/bin/python3.11 -u -m pkg.mod", "proj: python -m pkg.mod"),
        ("/opt/tools/solve_2 x", "proj: solve_2 x"),
        ("bash -lc 'cd x && python a.py --lr 2'", "x: python a.py --lr"),
        ("A=b sh -c \"sh -c 'python a.py --lr 2'\"", "proj: A=b python a.py --lr"),
        ("bash run.sh 5", "proj: bash run.sh # [5]"),
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
fn what_is_put_in_front_does_not_make_a_new_kind() {
    let bare = shape("python t.py --bs 8");
    for front in [
        "nice",
        "nice -n 5",
        "nice -5",
        "nice --adjustment 5",
        "taskset -c 0-3",
        "taskset 0xff",
        "taskset ff",
        "env",
        "env -u HOME -i",
        "env A=1",
        "time",
        "/usr/bin/time -v",
        "time -f %e -o times",
        "stdbuf -oL",
        "stdbuf -o L -eL",
        "ionice -c2 -n7",
        "ionice -c best-effort",
        "timeout 1h",
        "timeout -s KILL -k 5 1h",
        "timeout --signal=KILL infinity",
        "setsid -w",
        "nohup",
        "numactl -N 0 -m 0",
        "numactl --interleave all --",
        "chrt -b 0",
        "nohup nice -n 5 taskset -c 0,2 env A=1 time",
    ] {
        assert_eq!(shape(&format!("{front} python t.py --bs 8")), bare, "{front}");
    }
    for python in ["python3 -u", "python -uB -W ignore -X dev", "python3.12 -O -u"] {
        assert_eq!(shape(&format!("{python} t.py --bs 8")), bare, "{python}");
    }
}

#[test]
fn variables_count_however_they_are_set() {
    let bare = shape("BS=32 python t.py");
    assert_eq!(bare, "proj: BS=32 python t.py");
    for line in [
        "export BS=32; python t.py",
        "export BS=32 && python t.py",
        "export BS=8 && BS=32 && python t.py",
        "BS=32; python t.py",
        "declare -x BS=32\npython t.py",
        "env BS=32 python t.py",
        "export BS=32; bash -c 'python t.py'",
        "export BS=32 API_KEY=abc; python t.py",
    ] {
        assert_eq!(shape(line), bare, "{line}");
    }
    assert_ne!(shape("export BS=64; python t.py"), bare);
    assert_eq!(shape("A=b ./x; ./y"), "proj: A=b x; y");
    let env = BTreeMap::from([("BS".to_owned(), ByteString(b"32".to_vec()))]);
    let command = Command::Line(b"python t.py".to_vec());
    let draft = SignatureDraft::new(&command, &env, Path::new("/home/me/proj"));
    assert_eq!(draft.finish(&[]).name, bare);
}

#[test]
fn files_of_settings_count_by_what_is_in_them() {
    for (line, wanted) in [
        ("python t.py --config cfg/exp1.yaml", "/home/me/proj/cfg/exp1.yaml"),
        ("python t.py --config=exp1", "/home/me/proj/exp1"),
        ("python t.py config=a/b.yaml", "/home/me/proj/a/b.yaml"),
        ("python t.py @args.txt", "/home/me/proj/args.txt"),
        ("python t.py /etc/x.toml", "/etc/x.toml"),
        ("cd sub && python t.py ../x.json", "/home/me/proj/sub/../x.json"),
        ("CFG=x.ini ./train", "/home/me/proj/x.ini"),
        ("python tools/t.py configs/net.py", "/home/me/proj/configs/net.py"),
        ("python -m pkg.t --config net.py", "/home/me/proj/net.py"),
        ("torchrun --standalone t.py c.yaml", "/home/me/proj/c.yaml"),
        ("python t.py exp1", "/home/me/proj/exp1"),
        ("python t.py --data fold2", "/home/me/proj/fold2"),
        ("python t.py --exp cfg/a.yaml", "/home/me/proj/cfg/a.yaml"),
        ("python t.py --experiment=cfg/exp1.yaml", "/home/me/proj/cfg/exp1.yaml"),
    ] {
        assert_eq!(files(line), [wanted], "{line}");
        let [one, other] = [1, 2].map(|content| with_content(line, content));
        assert_ne!(one.name, other.name, "{line}");
        assert_eq!(one.family, other.family, "{line}");
    }
    // What is executed, where it writes, and what only a shell could tell.
    for line in [
        "python t.py",
        "bash run",
        "bin/train --lr 0.1",
        "python t.py --model resnet50 --exp-name exp1",
        "python t.py --output-dir out/x --log-file x.log > y.txt",
        "python t.py --config $CFG --url s3://a/b.yaml --data 'x/*.csv'",
    ] {
        assert_eq!(files(line), [""; 0], "{line}");
    }
}

#[test]
fn without_a_file_the_name_of_a_configuration_counts() {
    let line = "python t.py --config cfg/exp1.yaml";
    let family = "proj: python t.py --config cfg/exp#.yaml";
    assert_eq!(shape(line), format!("{family} [cfg/exp1.yaml]"));
    let known = with_content(line, 0x1a2b);
    assert_eq!(known.name, format!("{family} [00001a2b]"));
    assert_eq!(known.family.as_deref(), Some(family));
    assert!(is_member(&known.name, family));
    assert!(!is_member(family, family));
    // A name without a counter says it all, and so do other texts.
    for line in ["./t --config net.yaml", "./t --data run_3/x.csv"] {
        assert_eq!(draft(line).finish(&[]).family, None, "{line}");
    }
    assert_ne!(shape("./t experiment=exp1"), shape("./t experiment=exp2"));
}

#[test]
fn many_details_are_told_by_their_hash() {
    let many = |last: u32| shape(&format!("train {} {last}", "123456 ".repeat(30)));
    assert!(many(1).starts_with("proj: train # ["), "{}", many(1));
    assert!(many(1).len() < 40);
    assert_ne!(many(1), many(2));
    assert_ne!(shape("train '[1, 2]'"), shape("train '[1, 3]'"));
}

#[test]
fn a_command_that_does_nothing_else_is_its_own_shape() {
    for (line, wanted) in [
        ("sleep 10", "proj: sleep # [10]"),
        ("echo a && sleep 1", "proj: echo a; sleep # [1]"),
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
    assert_eq!(signature(&csv, folder), "code1: python code1.py --epochs --id");
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
    let found = signature(&Command::Line(b"a \x1b[2J\xff 'b\nc'".to_vec()), Path::new("/x\n"));
    assert!(!found.contains(|c: char| c.is_control()), "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_sweep_over_numbers_has_one_shape(lr in any::<f64>(), seed in any::<u64>(), n in -9_i64..99999) {
        let line = format!("python t.py --lr {lr} seed={seed} -n {n} {n} --wd={lr:e} out/run_{seed}");
        prop_assert_eq!(shape(&line), "proj: python t.py --lr seed= -n --wd out/run_#");
    }

    #[test]
    fn details_tell_members_of_a_family_apart(
        one in "\\PC{0,9}", other in "\\PC{0,9}", content in any::<u32>(),
    ) {
        let line = |config: &str, number: u32| {
            let config = config.replace('\'', "");
            format!("python t.py {number} --config 'c/{config}'")
        };
        let [one, other, third] = [(&one, 1), (&other, 1), (&one, 2)]
            .map(|(config, number)| with_content(&line(config, number), content.into()));
        let family = one.family.clone().unwrap();
        prop_assert!(is_member(&one.name, &family), "{one:?}");
        prop_assert_eq!(&third.family, &one.family);
        prop_assert_ne!(&third.name, &one.name);
        if other.family == one.family {
            // Their names have the same shape, and the content is the same.
            prop_assert_eq!(other.name, one.name);
        }
    }
}
