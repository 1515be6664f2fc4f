//! QUIC through wharf: quinn's own endpoints on two hosts, every byte compared.
//!
//! quinn sends up to ten packets with one `sendmsg` and `UDP_SEGMENT`, and receives with `UDP_GRO`:
//! what wharf takes from the host are super-packets, and with `lro.udp` it makes some itself.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use degen::Random;
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{
    ClientConfig, Endpoint, EndpointConfig, RecvStream, SendStream, ServerConfig, TokioRuntime,
    TransportConfig, VarInt,
};
use testkit::lab::Host;

use crate::setup::{Hosts, Ip, Plan, Port, Up, may_have_room};

const MB: usize = 1 << 20;
/// Bytes more, so that the last packet is short.
const ODD: usize = 1234;
/// Bytes written and read at once.
const BLOCK: usize = 64 << 10;
/// Room in a socket, in bytes of kernel memory: more than is ever on its way.
const BUFFER: u32 = 16 << 20;
/// The name in the certificate.
const NAME: &str = "server.test";

/// Who cuts, and who joins.
#[derive(Clone, Copy, Debug)]
struct Offloads {
    /// quinn writes several packets at once (`enable_segmentation_offload`).
    quinn: bool,
    /// `gso.enable`.
    gso: bool,
    /// `lro.udp`.
    lro: bool,
}

/// A connection between the hosts carries so many bytes each way at the same time.
fn transfer(up: &Up, ip: Ip, offloads: Offloads, length: usize) {
    let certificate = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
    let certificate = CertificateDer::from(certificate.cert);
    let mut transport = TransportConfig::default();
    transport.enable_segmentation_offload(offloads.quinn);
    // So much is on its way at most, which no queue is too short for.
    let window = VarInt::from_u32(1 << 20);
    transport.stream_receive_window(window).receive_window(window);
    let transport = Arc::new(transport);

    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
    client.transport_config(Arc::clone(&transport));
    let mut server = ServerConfig::with_single_cert(vec![certificate], key.into()).unwrap();
    server.transport_config(transport);

    let [client_socket, server_socket] =
        [(&up.hosts.client, ip.client()), (&up.hosts.server, ip.server())].map(bind);
    let address = server_socket.local_addr().unwrap();
    let Hosts { client: asker, server: answerer, .. } = &up.hosts;
    std::thread::scope(|scope| {
        scope.spawn(|| answerer.run(|| serve(server_socket, server, length)));
        scope.spawn(|| asker.run(|| ask(client_socket, client, address, length)));
    });
}

fn bind((host, address): (&Host, IpAddr)) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind((address, 0))).unwrap();
    sys::udp::force_receive_buffer(&socket, BUFFER).unwrap();
    socket
}

/// The server: one connection, one stream.
fn serve(socket: UdpSocket, config: ServerConfig, length: usize) {
    run(async {
        let endpoint = endpoint(socket, Some(config));
        let connection = endpoint.accept().await.unwrap().await.unwrap();
        let (send, receive) = connection.accept_bi().await.unwrap();
        exchange(send, receive, Sides { own: 2, other: 1, length }).await;
        // The client closes when it has all.
        connection.closed().await;
    });
}

/// The client.
fn ask(socket: UdpSocket, config: ClientConfig, address: SocketAddr, length: usize) {
    run(async {
        let mut endpoint = endpoint(socket, None);
        endpoint.set_default_client_config(config);
        let connection = endpoint.connect(address, NAME).unwrap().await.unwrap();
        let (send, receive) = connection.open_bi().await.unwrap();
        exchange(send, receive, Sides { own: 1, other: 2, length }).await;
        connection.close(VarInt::from_u32(0), b"all received");
        endpoint.wait_idle().await;
    });
}

/// Runs on this thread, and so in its namespace, alone.
fn run(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
}

fn endpoint(socket: UdpSocket, server: Option<ServerConfig>) -> Endpoint {
    Endpoint::new(EndpointConfig::default(), server, socket, Arc::new(TokioRuntime)).unwrap()
}

/// What the two sides send: what their bytes begin from.
struct Sides {
    own: u64,
    other: u64,
    /// Bytes each way.
    length: usize,
}

/// Sends and receives at the same time.
async fn exchange(send: SendStream, receive: RecvStream, sides: Sides) {
    let sender = tokio::spawn(send_all(send, sides.own, sides.length));
    let receiver = tokio::spawn(receive_all(receive, sides.other, sides.length));
    receiver.await.unwrap();
    sender.await.unwrap();
}

async fn send_all(mut to: SendStream, seed: u64, mut left: usize) {
    let mut payload = Payload(Random::new(seed));
    while left > 0 {
        let block = payload.block(left.min(BLOCK));
        to.write_all(&block).await.unwrap();
        left -= block.len();
    }
    to.finish().unwrap();
    // Until the other side has all of it.
    to.stopped().await.unwrap();
}

async fn receive_all(mut from: RecvStream, seed: u64, mut left: usize) {
    let (mut payload, mut received) = (Payload(Random::new(seed)), vec![0; BLOCK]);
    while left > 0 {
        let expected = payload.block(left.min(BLOCK));
        let received = &mut received[..expected.len()];
        from.read_exact(received).await.unwrap();
        assert!(received == expected, "other bytes, {left} before the end");
        left -= expected.len();
    }
    assert_eq!(from.read(&mut received).await.unwrap(), None, "bytes after the end");
}

/// Bytes that never repeat themselves.
struct Payload(Random);

impl Payload {
    fn block(&mut self, length: usize) -> Vec<u8> {
        let mut block = vec![0; length];
        self.0.fill(&mut block);
        block
    }
}

/// What wharf has counted: super-packets of UDP that it cut, and packets that it joined.
fn counted(up: &Up, ip: Ip) -> [u64; 2] {
    up.all_counted();
    [up.counter(&ip.gso("uso"), "super_packets"), up.counter("lro", "merged")]
}

/// Carries `length` bytes each way, and checks who did the work.
fn carry(up: &Up, ip: Ip, offloads: Offloads, length: usize) {
    for (key, on) in [("gso.enable", offloads.gso), ("lro.udp", offloads.lro)] {
        let ended = up.hosts.wharf(&["set", key, &on.to_string()]);
        assert!(ended.status.success(), "{ended}");
    }
    let before = counted(up, ip);
    transfer(up, ip, offloads, length);
    let after = counted(up, ip);
    let [cut, joined] = [after[0] - before[0], after[1] - before[1]];
    assert_eq!(cut > 0, offloads.quinn && offloads.gso, "{ip:?} {offloads:?}: {cut} super-packets");
    // Packets that quinn writes one by one may all come one by one.
    let may_join = offloads.lro && !offloads.quinn;
    assert!((joined > 0) == offloads.lro || may_join, "{ip:?} {offloads:?}: {joined} joined");
}

#[test]
fn quic_passes_with_all_offloads() {
    if !may_have_room() {
        return;
    }
    for port in [Port::Auto, Port::Packet, Port::Veth] {
        let Some(up) = Plan::new(port).up() else { return };
        for ip in Ip::BOTH {
            let all = Offloads { quinn: true, gso: true, lro: true };
            carry(&up, ip, all, 32 * MB + ODD);
        }
        up.nothing_went_wrong();
    }
}

#[test]
fn quic_passes_with_each_offload_on_and_off() {
    if !may_have_room() {
        return;
    }
    let Some(up) = Plan::new(Port::Auto).up() else { return };
    for ip in Ip::BOTH {
        for quinn in [true, false] {
            for gso in [true, false] {
                for lro in [true, false] {
                    carry(&up, ip, Offloads { quinn, gso, lro }, 8 * MB + ODD);
                }
            }
        }
    }
    up.nothing_went_wrong();
}
