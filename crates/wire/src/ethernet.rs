//! Ethernet II and VLAN tags.

/// Bytes of an Ethernet II header: two addresses and the type.
pub const ETHERNET_LEN: usize = 14;
/// Bytes of a MAC address.
pub const MAC_LEN: usize = 6;
/// A MAC address.
pub type Mac = [u8; MAC_LEN];
/// The broadcast address.
pub const BROADCAST: Mac = [0xff; MAC_LEN];
/// Bytes that one 802.1Q or 802.1ad tag adds.
pub const VLAN_LEN: usize = 4;

/// Type of an Ethernet frame's payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// Address resolution.
    pub const ARP: EtherType = EtherType(0x0806);
    /// A customer VLAN tag (802.1Q).
    pub const VLAN: EtherType = EtherType(0x8100);
    /// IPv6.
    pub const IPV6: EtherType = EtherType(0x86DD);
    /// A service VLAN tag (802.1ad).
    pub const SERVICE_VLAN: EtherType = EtherType(0x88A8);

    /// Whether a VLAN tag follows.
    #[inline]
    pub const fn is_vlan(self) -> bool {
        matches!(self, EtherType::VLAN | EtherType::SERVICE_VLAN)
    }
}

/// Writes an Ethernet II header to the start of `into`.
#[inline]
pub fn write_ethernet(into: &mut [u8], to: Mac, from: Mac, kind: EtherType) {
    into[..6].copy_from_slice(&to);
    into[6..12].copy_from_slice(&from);
    into[12..ETHERNET_LEN].copy_from_slice(&kind.0.to_be_bytes());
}

/// Returns whether an address is that of a group: multicast or broadcast (IEEE 802, section 8.2.2).
#[inline]
pub const fn is_group(mac: Mac) -> bool {
    mac[0] & 1 != 0
}
