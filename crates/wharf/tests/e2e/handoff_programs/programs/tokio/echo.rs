//! A server that echoes, by tokio.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(format!("[::]:{port}")).await?;
        println!("listens");
        loop {
            let (stream, peer) = listener.accept().await?;
            assert_eq!(stream.peer_addr()?, peer);
            stream.set_nodelay(true)?;
            tokio::spawn(serve(stream));
        }
    })
}

async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        match stream.read(&mut bytes).await? {
            0 => return Ok(()),
            read => stream.write_all(&bytes[..read]).await?,
        }
    }
}
