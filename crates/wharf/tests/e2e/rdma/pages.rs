//! What the pages on verbs tell their readers to do.

use std::fs;
use std::path::Path;

use testkit::lab::Host;

use super::{Folder, Pair, library, ordinary, with_libraries};
use crate::setup::wharf;

/// The block of a page that begins so.
fn block<'a>(page: &'a str, begins: &str) -> &'a str {
    let blocks = page.split("```\n").skip(1).step_by(2);
    let mut such = blocks.filter(|block| block.starts_with(begins));
    such.next().unwrap_or_else(|| panic!("no block of the page begins with {begins:?}"))
}

/// Runs a script of a job's in this folder, as an ordinary user who has `wharf` in the path.
fn run(host: &Host, folder: &Folder, name: &str, script: &str) {
    fs::write(folder.path(name), script).unwrap();
    let program = wharf();
    let bin = Path::new(program.get_program()).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut job = with_libraries(ordinary(&["sh", name]));
    job.current_dir(folder.path("")).env("PATH", path).env_remove("WHARF_RDMA");
    let ended = host.output(&mut job);
    assert!(ended.status.success(), "{name}: {ended}");
    assert!(ended.stdout.contains("RDMA_Write BW Test"), "{name}: {ended}");
    assert!(ended.stdout.contains("Device         : wharf0"), "{name}: {ended}");
}

#[test]
fn a_job_runs_perftest_as_the_page_on_ci_has_it() {
    let Some(pair) = Pair::new(&["ib_write_bw", "ib_send_lat", "timeout"]) else { return };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/verbs-in-ci.md");
    let page = fs::read_to_string(page).unwrap();
    let folder = Folder::new("ci");
    fs::create_dir(folder.path("ci")).unwrap();
    let both = block(&page, "# A client that comes before its server listens");
    fs::write(folder.path("ci/perftest.sh"), both).unwrap();
    // Each program has a device of its own, or one serves all.
    run(&pair.client, &folder, "each.sh", block(&page, "wharf run --rdma -- sh ci/perftest.sh"));
    let one = block(&page, "wharf rdma >device.txt");
    let installed = "/usr/local/lib/libwharf_rdma.so";
    assert!(one.contains(installed), "{one}");
    let one = one.replace(installed, library().to_str().unwrap());
    run(&pair.client, &folder, "one.sh", &one);
}
