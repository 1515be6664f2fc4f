//! Resets that programs are told of, wherever they have the connection by then.

use std::io::{Read, Write};

use super::{connect, is_as_the_kernels, reset};

/// Programs that say when they have the connection elsewhere, and what reading it gives.
fn is_told(script: &str) {
    let begin = "
s = listens()
def reads(c):
    say('has it')
    p = select.poll()
    p.register(c, select.POLLHUP)
    p.poll()
    say(tried(all_of, c), tried(c.recv, 1))
";
    is_as_the_kernels(&format!("{begin}{script}"), |program, to| {
        let mut stream = connect(to);
        stream.write_all(b"text").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        assert_eq!(program.line(), "has it");
        reset(stream);
        String::new()
    });
}

#[test]
fn a_reset_is_told_when_the_thread_that_has_accepted_has_ended() {
    is_told(
        "
got = []
def accepts():
    got.append(s.accept()[0])
    got.append(threading.get_native_id())
t = threading.Thread(target=accepts)
t.start()
t.join()
c, thread = got
# Its number is free a little later.
while os.path.exists(f'/proc/self/task/{thread}'): time.sleep(0.01)
c.sendall(b'x')
reads(c)
",
    );
}

#[test]
fn a_reset_is_told_by_another_descriptor() {
    is_told(
        "
c = s.accept()[0]
os.dup2(c.fileno(), 200)
c.close()
c = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=200)
c.sendall(b'x')
reads(c)
",
    );
}

#[test]
fn a_reset_is_told_to_a_child() {
    is_told(
        "
c = s.accept()[0]
if os.fork():
    c.close()
    os.wait()
else:
    c.sendall(b'x')
    reads(c)
    os._exit(0)
",
    );
}

#[test]
fn a_reset_is_told_to_whoever_got_the_descriptor() {
    is_told(
        "
near, far = socket.socketpair(socket.AF_UNIX)
if os.fork() == 0:
    c = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=socket.recv_fds(far, 1, 1)[1][0])
    c.sendall(b'x')
    reads(c)
    os._exit(0)
c = s.accept()[0]
socket.send_fds(near, [b'x'], [c.fileno()])
c.close()
os.wait()
",
    );
}
