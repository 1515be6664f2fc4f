//! What may be done to a region.

use super::Error;

/// Rights, by the bits of `ibv_access_flags`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Access(u32);

impl Access {
    /// Local reading, which is always granted.
    pub const LOCAL_READ: Access = Access(0);
    /// Receives, and the results of reads and atomics.
    pub const LOCAL_WRITE: Access = Access(1);
    /// RDMA Writes of the peer.
    pub const REMOTE_WRITE: Access = Access(1 << 1);
    /// RDMA Reads of the peer.
    pub const REMOTE_READ: Access = Access(1 << 2);
    /// Atomic operations of the peer.
    pub const REMOTE_ATOMIC: Access = Access(1 << 3);
    /// Windows may be bound to it.
    pub const WINDOW_BIND: Access = Access(1 << 4);
    /// All of the above.
    pub const ALL: Access = Access(0x1f);

    /// `IBV_ACCESS_ZERO_BASED` and `IBV_ACCESS_ON_DEMAND`.
    const NOT_SUPPORTED: u32 = 1 << 5 | 1 << 6;
    /// `IBV_ACCESS_HUGETLB`: how pages are mapped, which makes no difference here.
    const HUGETLB: u32 = 1 << 7;
    /// `IBV_ACCESS_OPTIONAL_RANGE`: a device may leave them alone.
    const OPTIONAL: u32 = 0x3ff0_0000;

    /// The rights of these `ibv_access_flags`.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for zero-based and on-demand regions; [`Error::Invalid`] for unknown flags, and for
    /// what lets a peer write but not the application's own work requests.
    pub fn from_bits(bits: u32) -> Result<Access, Error> {
        if bits & Self::NOT_SUPPORTED != 0 {
            return Err(Error::NotSupported);
        }
        let bits = bits & !Self::HUGETLB & !Self::OPTIONAL;
        if bits & !Self::ALL.0 != 0 {
            return Err(Error::Invalid);
        }
        Ok(Access(bits))
    }

    /// As `ibv_access_flags`.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// As a region's: whoever lets a peer write must let itself.
    pub(crate) fn for_region(self) -> Result<Access, Error> {
        let writes = Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0;
        if self.0 & writes != 0 && !self.grants(Self::LOCAL_WRITE) {
            return Err(Error::Invalid);
        }
        Ok(self)
    }

    /// As a window's on a region with these rights: only remote ones, and no writing if the region has none.
    pub(crate) fn for_window(self, region: Access) -> bool {
        let remote = Self::REMOTE_WRITE.0 | Self::REMOTE_READ.0 | Self::REMOTE_ATOMIC.0;
        let writes = self.0 & (Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0) != 0;
        self.0 & !remote == 0
            && region.grants(Self::WINDOW_BIND)
            && (!writes || region.grants(Self::LOCAL_WRITE))
    }

    /// Whether all of these are granted.
    #[inline]
    pub const fn grants(self, needed: Access) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// Both.
    #[must_use]
    pub const fn and(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}
