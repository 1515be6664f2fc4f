//! Addresses that another stack has on the same interface.

use std::net::Ipv4Addr;

use iface::{Addresses, Config, Dropped, Interface, Packet};
use testkit::packet::PacketBuilder;
use wire::{ETHERNET_LEN, Mac};

const OWN: Mac = [2, 0, 0, 0, 0, 2];

#[test]
fn an_address_of_another_stack_is_taken_for_without_a_word() {
    let addresses = Addresses::default();
    let mut host = Interface::new(Config { mac: OWN, addresses, secret: [7; 16], probes: 3 });
    host.start(0);
    assert!(host.is_settled() && host.next_deadline().is_none());
    let mut packet = PacketBuilder::tcp4().payload_pattern(10).build();
    packet[..6].copy_from_slice(&OWN);
    let to = Ipv4Addr::from(*packet[ETHERNET_LEN + 16..].first_chunk::<4>().unwrap());
    let receive = |host: &mut Interface| host.receive(&Packet::frame(&packet), 0).map(|_| ());
    assert_eq!(receive(&mut host), Err(Dropped::OtherAddress));
    host.adopt(to.into());
    host.adopt(to.into());
    assert_eq!(receive(&mut host), Ok(()));
    assert_eq!(host.addresses().own().len(), 1);
    host.on_time(0);
    assert!(host.poll_transmit(0).is_none() && host.next_deadline().is_none());
}
