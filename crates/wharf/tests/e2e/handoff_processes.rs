//! Children of a program that are made by other means than fork(3), and have its connections: what the child has lives on
//! when the parent has closed it.

use std::collections::BTreeMap;

use crate::handoff::serve;
use crate::handoff_reasons::{ECHOES, does, goes_back, restored, up};

/// Does what the first line of a connection names. Where a child has the connection, this one closes it, and the child
/// says so after the second line, and is an echo server then.
const DOES: &str = r#"
import ctypes, mmap, os, select, signal, socket, struct, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
CLONE = 56 if os.uname().machine == 'x86_64' else 220
os.environ['ECHOES'] = ECHOES
def words(fd): return ['python3', '-u', '-c', ECHOES, str(fd)]
def serves(c):
    try: serve(c)
    finally: os._exit(0)
def forks(c, child):
    if child == 0: serves(c)
    assert child > 0, child
    c.close()
def beside(c):
    os.waitpid(os.posix_spawnp('true', ['true'], os.environ), 0)
    subprocess.run(['true'], check=True)
    assert libc.system(b'true') == 0
def spawned(c):
    os.posix_spawnp('python3', words(0), os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, c.fileno(), 0)])
    c.close()
def spawned_by_path(c):
    where = [(os.POSIX_SPAWN_CLOSE, 1), (os.POSIX_SPAWN_DUP2, c.fileno(), 0)]
    os.posix_spawn(sys.executable, words(0), os.environ, file_actions=where)
    c.close()
def spawned_with_all(c):
    os.set_inheritable(c.fileno(), True)
    os.posix_spawnp('python3', words(c.fileno()), os.environ)
    c.close()
def vforked(c):
    assert subprocess._USE_VFORK
    subprocess.Popen(words(0), stdin=c)
    c.close()
def vforked_with_it(c):
    subprocess.Popen(words(c.fileno()), pass_fds=[c.fileno()])
    c.close()
def vforked_beside_set(c):
    # The parent waits for what comes next in a set that had the connection at the NIC.
    e = select.epoll()
    e.register(c, select.EPOLLIN)
    subprocess.run(['true'], stdin=c, check=True)
    assert e.poll() == [(c.fileno(), select.EPOLLIN)]
def by_shell(c):
    os.set_inheritable(c.fileno(), True)
    assert libc.system(b'python3 -u -c "$ECHOES" %d <&- &' % c.fileno()) == 0
    c.close()
def by_pipe(c):
    os.set_inheritable(c.fileno(), True)
    assert libc.popen(b'python3 -u -c "$ECHOES" %d' % c.fileno(), b'r')
    c.close()
def forked_alone(c): forks(c, libc._Fork())
def forked_by_number(c): forks(c, libc.syscall(57))
def vforked_by_number(c): forks(c, libc.syscall(58))
def cloned_by_number(c): forks(c, libc.syscall(CLONE, signal.SIGCHLD, 0, 0, 0, 0))
def cloned_with_own_numbers(c):
    # CLONE_NEWPID
    forks(c, libc.syscall(CLONE, signal.SIGCHLD | 0x20000000, 0, 0, 0, 0))
def cloned3_by_number(c):
    given = ctypes.create_string_buffer(struct.pack('11Q', 0, 0, 0, 0, signal.SIGCHLD, *[0] * 6))
    forks(c, libc.syscall(435, given, 88))
def cloned(c):
    stack = mmap.mmap(-1, 1 << 23)
    top = ctypes.addressof(ctypes.c_char.from_buffer(stack)) + len(stack)
    run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda argument: serves(c))
    forks(c, libc.clone(run, ctypes.c_void_p(top), signal.SIGCHLD, None))
s = socket.socket()
s.bind(('', 7000)); s.listen(64); print('listens', flush=True)
while True:
    c = s.accept()[0]
    name = b''
    while not name.endswith(b'\n'): name += c.recv(1)
    globals()[name.decode().strip()](c)
    if c.fileno() >= 0: serve(c)
"#;

/// The program does this; what a child has goes back for this reason.
fn each_does(all: &[&str], reason: Option<&str>) {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "at_accept", &[ECHOES, DOES].concat());
    for what in all {
        println!("{what}");
        let before: BTreeMap<String, u64> = restored(&up);
        goes_back(&up, &before, does(&up, what), reason);
    }
    up.nothing_went_wrong();
}

#[test]
fn what_no_child_has_stays_on_the_nic() {
    each_does(&["beside"], None);
}

#[test]
fn a_program_that_libc_starts_gets_its_connections_from_the_kernel() {
    let all = ["spawned", "spawned_by_path", "spawned_with_all", "by_shell", "by_pipe"];
    each_does(&all, Some("exec"));
}

#[test]
fn a_program_that_a_child_of_vfork_executes_gets_its_connections_from_the_kernel() {
    each_does(&["vforked", "vforked_with_it", "vforked_beside_set"], Some("exec"));
}

#[test]
fn children_past_fork_share_no_connection_with_the_nic() {
    let by_number = ["cloned_by_number", "cloned_with_own_numbers", "cloned3_by_number"];
    each_does(&[&["forked_alone", "cloned"], &by_number[..]].concat(), Some("fork"));
}

/// There are no such numbers elsewhere.
#[cfg(target_arch = "x86_64")]
#[test]
fn children_by_the_number_of_fork_share_no_connection_with_the_nic() {
    each_does(&["forked_by_number", "vforked_by_number"], Some("fork"));
}
