//! A supervisor that has fewer descriptors than its program.

use std::io::Write;

use super::{Program, Way, connect, rest};

#[test]
fn connections_for_which_the_supervisor_has_no_descriptors_are_the_kernels() {
    let script = "
s = listens()
# A pair has no such option.
def is_tcp(c): return tried(c.setsockopt, socket.IPPROTO_TCP, 36, 0) is None
def both(waits):
    s.setblocking(waits)
    c = socket.create_connection(s.getsockname())
    a = tried(s.accept)
    while a == 'EAGAIN': a = tried(s.accept)
    return [c, a[0]]
all = both(True) + both(True) + both(False)
for c in all: c.setblocking(True)
for c, a in zip(all[::2], all[1::2]):
    c.sendall(b'there'); a.sendall(b'back')
    assert (all_of(a, 5), all_of(c, 4), c.getpeername()) == (b'there', b'back', a.getsockname())
say([is_tcp(c) for c in all])
# Calls that wait become the kernel's, too.
while len(all) > 1: all.pop().close()
s.setblocking(True)
got = []
def waits():
    c = s.accept()[0]
    got.append(c)
    c.sendall(all_of(c))
    c.shutdown(socket.SHUT_WR)
threads = [threading.Thread(target=waits) for _ in range(4)]
for t in threads: t.start()
say('waits')
for t in threads: t.join(60)
say(len(got), any(is_tcp(c) for c in got))
";
    let mut program = Program::start(Way::Few, script);
    let to = program.address();
    assert_eq!(program.line(), "[False, False, True, True, True, True]");
    assert_eq!(program.line(), "waits");
    let streams: Vec<_> = (0..4).map(|_| connect(to)).collect();
    for mut stream in &streams {
        stream.write_all(b"text").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(rest(stream), "4 bytes and the end");
    }
    drop(streams);
    assert_eq!(program.end(), "4 True\n");
}
