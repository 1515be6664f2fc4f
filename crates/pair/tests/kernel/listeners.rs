//! Listeners: when their port is free, and who waits for them.

use std::io::Write;
use std::net::TcpListener;

use super::{connect, is_as_the_kernels};

#[test]
fn a_port_is_free_when_its_listener_is_closed() {
    let script = "
s = listens()
port = s.getsockname()[1]
def waits():
    try: s.accept()
    except OSError: pass
def handler(*_): raise OSError(errno.EINTR, '')
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.1)
waits()
s.close()
time.sleep(0.5)
s = socket.socket()
say(tried(s.bind, ('127.0.0.1', port)), tried(s.listen, 1))
";
    is_as_the_kernels(script, |_, _| String::new());
}

#[test]
fn a_listener_with_nothing_to_give_is_not_waited_for() {
    // The supervisor serves others while a call waits.
    let script = "
s = listens()
other = socket.socket()
other.bind(('127.0.0.1', 0))
other.listen(1)
threading.Thread(target=other.accept, daemon=True).start()
time.sleep(0.1)
c = s.accept()[0]
say(all_of(c))
os._exit(0)
";
    is_as_the_kernels(script, |_, to| {
        connect(to).write_all(b"text").unwrap();
        String::new()
    });
    let _ = TcpListener::bind("127.0.0.1:0").unwrap();
}
