//! A wharf of an ordinary user, in a user namespace and a network namespace of his own.

use std::process::Command;

use testkit::lab::{Host, have};
use testkit::missing::lacks;

use crate::demo::{as_nobody, for_everyone, user_namespaces_work};

/// Prints what the socket listens as, what `stats` says, and how wharf ends.
const SCRIPT: &str = r#"
set -e
ip link add wire0 type veth peer name peer0
ip link set peer0 up
"$1" up --wire wire0 --host host0 --set host.kind=veth &
until "$1" set lro.enable false 2> /dev/null; do sleep 0.1; done
grep -o '@wharf/host0$' /proc/net/unix
"$1" stats | head -1
"$1" up --wire wire0 --host other0 || echo "refused: $?"
kill -TERM $!
wait $!
echo "ended: $?"
"#;

#[test]
fn in_a_user_namespace_the_name_is_an_abstract_one_and_is_asked() {
    if !have(&["ip", "unshare", "sh"]) {
        return;
    }
    if !user_namespaces_work() {
        return lacks("user namespaces for ordinary users");
    }
    let Some(program) = for_everyone() else { return };
    let Some(host) = Host::new() else { return };
    let mut command: Command = as_nobody("unshare".as_ref());
    command.args(["--user", "--map-root-user", "--net", "sh", "-c", SCRIPT, "sh"]);
    let ended = host.output(command.arg(program.path()));
    assert!(ended.status.success(), "{ended}");
    for part in ["@wharf/host0\n", "host host0; ", "refused: 2\n", "ended: 0\n"] {
        assert!(ended.stdout.contains(part), "{part:?} is not in: {ended}");
    }
    assert!(!ended.stderr.contains("abstract"), "it is as it should be: {ended}");
}
