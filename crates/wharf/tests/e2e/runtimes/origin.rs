//! A server that echoes, of the test's own, at the client's host: proxies connect to it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use crate::handoff_programs::Stage;
use crate::setup::Ip;

pub(super) const PORT: u16 = 7011;

fn serve(mut stream: TcpStream) {
    let mut room = vec![0; 1 << 16];
    while let Ok(count @ 1..) = stream.read(&mut room) {
        if stream.write_all(&room[..count]).is_err() {
            return;
        }
    }
    // The peer may have closed it.
    let _ = stream.shutdown(Shutdown::Write);
}

/// Its threads end with the tests.
pub(super) fn start(stage: &Stage) {
    let at = SocketAddr::new(Ip::V4.client(), PORT);
    let listener = stage.hosts.client.run(|| TcpListener::bind(at)).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
}
