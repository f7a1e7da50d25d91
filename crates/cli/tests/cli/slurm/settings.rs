//! Which settings jobs of a run read.

use packhorse_test_parts::needs;

use super::{Cluster, lines};

#[test]
fn jobs_read_the_file_of_settings_that_was_named_and_not_one_that_they_find() {
    needs!(Slurm);
    let cluster = Cluster::with_one_node();
    cluster.world.write("packhorse.toml", "garbage ]]");
    cluster.world.write("named.toml", "[task]\nenv = { GOOD = \"good\" }\n");
    let words = ["run", "--config", "named.toml", "--slurm", "--time", "10"];
    let done = cluster.packhorse_with(words, lines("echo $GOOD", 1));
    assert_eq!(done.code, 0, "{done:?}");
    let done = cluster.packhorse(["slurm", "wait"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(cluster.logs(1, 1), ["good"]);
}
