//! Versions of IP.

use std::net::IpAddr;

/// Of which packets something is told.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Versions {
    /// Those of IPv4.
    pub v4: bool,
    /// Those of IPv6.
    pub v6: bool,
}

impl Versions {
    /// None.
    pub const NONE: Versions = Versions { v4: false, v6: false };
    /// Both.
    pub const BOTH: Versions = Versions { v4: true, v6: true };

    /// What either has.
    #[must_use]
    pub fn or(self, other: Versions) -> Versions {
        Versions { v4: self.v4 || other.v4, v6: self.v6 || other.v6 }
    }

    /// Whether it has what the other has not.
    pub fn exceeds(self, other: Versions) -> bool {
        self.v4 && !other.v4 || self.v6 && !other.v6
    }

    /// Whether the version of this address is among them. An address of IPv4 in mapped form is one of IPv4.
    pub fn has(self, ip: IpAddr) -> bool {
        if ip.to_canonical().is_ipv4() { self.v4 } else { self.v6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn versions_join_and_exceed(a: [bool; 2], b: [bool; 2]) {
            let of = |[v4, v6]: [bool; 2]| Versions { v4, v6 };
            let (a, b) = (of(a), of(b));
            prop_assert!(!a.exceeds(a.or(b)) && !b.exceeds(a.or(b)));
            prop_assert_eq!(a.exceeds(b), a.or(b) != b);
        }
    }
}
