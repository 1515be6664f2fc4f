//! Features and settings of network drivers, by `SIOCETHTOOL`: those of `ethtool -i`, `-l`, `-k` and `-K`.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::error::check;
use crate::interface::{self, Interface, control_socket};
use crate::netlink::text;
use crate::{Error, Result};

/// linux/ethtool.h.
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETH_SS_FEATURES: u32 = 4;
const ETH_GSTRING_LEN: usize = 32;
/// The setting was refused as a whole or in part because a feature cannot be changed.
const ETHTOOL_F_UNSUPPORTED: i32 = 1;

/// The offloads that have commands of their own, older than named features. One of them may stand for several
/// features (TSO: for IPv4, IPv6 and ECN).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// Receive checksumming (`rx`).
    RxChecksum,
    /// Transmit checksumming (`tx`).
    TxChecksum,
    /// Scatter-gather (`sg`).
    ScatterGather,
    /// TCP segmentation offload (`tso`).
    Tso,
    /// Generic segmentation offload (`gso`).
    Gso,
    /// Generic receive offload (`gro`).
    Gro,
}

impl Offload {
    /// The commands that get and set it.
    fn commands(self) -> (u32, u32) {
        match self {
            Self::RxChecksum => (0x14, 0x15),
            Self::TxChecksum => (0x16, 0x17),
            Self::ScatterGather => (0x18, 0x19),
            Self::Tso => (0x1e, 0x1f),
            Self::Gso => (0x23, 0x24),
            Self::Gro => (0x2b, 0x2c),
        }
    }

    /// Its name in `ethtool -K`.
    pub fn name(self) -> &'static str {
        match self {
            Self::RxChecksum => "rx",
            Self::TxChecksum => "tx",
            Self::ScatterGather => "sg",
            Self::Tso => "tso",
            Self::Gso => "gso",
            Self::Gro => "gro",
        }
    }
}

/// Receive and transmit channels of a device (`ethtool -l`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channels {
    /// Channels that only receive.
    pub rx: u32,
    /// Channels that only transmit.
    pub tx: u32,
    /// Channels that do both.
    pub combined: u32,
}

/// The driver of one interface, in the network namespace that the thread was in at
/// [`open`](Self::open).
#[derive(Debug)]
pub struct Ethtool {
    socket: OwnedFd,
    name: String,
}

impl Ethtool {
    /// For the interface of this name, which is looked up by each call.
    pub fn open(name: &str) -> Result<Self> {
        let name = interface::checked(name)?.to_owned();
        let socket = control_socket().map_err(|cause| Error::new("open a socket", cause))?;
        Ok(Self { socket, name })
    }

    /// The driver's name: "veth", "tun", "virtio_net", "mlx5_core".
    pub fn driver(&self) -> Result<String> {
        // `struct ethtool_drvinfo`: command, then driver, version and others, 196 bytes in all.
        let mut info = [0u32; 49];
        info[0] = ETHTOOL_GDRVINFO;
        self.ioctl("name the driver of", &mut info)?;
        Ok(text(&bytes_of(&info[1..9])))
    }

    /// The device's channels now. `EOPNOTSUPP` from drivers that do not report them.
    pub fn channels(&self) -> Result<Channels> {
        // `struct ethtool_channels`: command, four maxima, then rx, tx, other, combined.
        let mut channels = [0u32; 9];
        channels[0] = ETHTOOL_GCHANNELS;
        self.ioctl("count the channels of", &mut channels)?;
        Ok(Channels { rx: channels[5], tx: channels[6], combined: channels[8] })
    }

    /// Number of receive queues in use: one AF_XDP socket is needed for each. From the channels where the
    /// driver reports them, else the number of queues with which the interface was made.
    ///
    /// # Errors
    /// The kernel's error: `ENODEV` also while a driver resets its device (`netif_device_present`).
    pub fn rx_queues(&self) -> Result<u32> {
        match receiving(self.channels())? {
            Some(queues) => Ok(queues),
            None => Interface::by_name(&self.name).map(|interface| interface.rx_queues),
        }
    }

    /// Whether an offload is on.
    pub fn offload(&self, offload: Offload) -> Result<bool> {
        let mut value = [offload.commands().0, 0];
        self.ioctl(format!("read the offload {} of", offload.name()), &mut value)?;
        Ok(value[1] != 0)
    }

    /// Turns an offload on or off. `EOPNOTSUPP` if the driver refuses.
    pub fn set_offload(&self, offload: Offload, on: bool) -> Result<()> {
        let mut value = [offload.commands().1, on.into()];
        let what = format!("turn {} the offload {} of", on_off(on), offload.name());
        self.ioctl(what, &mut value).map(drop)
    }

    /// Every feature by its name ("tx-tcp-segmentation", "rx-gro-hw") and whether it is active.
    pub fn features(&self) -> Result<BTreeMap<String, bool>> {
        let names = self.feature_names()?;
        let active = self.active_features(names.len())?;
        let features = names.into_iter().enumerate();
        Ok(features
            .filter(|(_, name)| !name.is_empty())
            .map(|(bit, name)| (name, bit_of(&active, bit)))
            .collect())
    }

    /// Turns a feature on or off by its name, and returns whether it is now active: features
    /// depend on each other, so one that was turned on may still wait for another.
    ///
    /// `InvalidInput` for a name that this kernel does not have, `Unsupported` for a feature that
    /// this driver cannot change.
    pub fn set_feature(&self, feature: &str, on: bool) -> Result<bool> {
        let what = || format!("turn {} the feature {feature} of", on_off(on));
        let fail = |kind, why: &str| {
            Error::new(what(), io::Error::new(kind, why.to_owned())).on(&*self.name)
        };
        let names = self.feature_names()?;
        let bit = names.iter().position(|name| name == feature).ok_or_else(|| {
            fail(io::ErrorKind::InvalidInput, "this kernel has no feature of that name")
        })?;
        // `struct ethtool_sfeatures`: command, number of blocks, then valid and requested bits.
        let blocks = names.len().div_ceil(32);
        let mut request = vec![0u32; 2 + 2 * blocks];
        request[0] = ETHTOOL_SFEATURES;
        request[1] = blocks as u32;
        request[2 + 2 * (bit / 32)] = 1 << (bit % 32);
        request[3 + 2 * (bit / 32)] = u32::from(on) << (bit % 32);
        if self.ioctl(what(), &mut request)? & ETHTOOL_F_UNSUPPORTED != 0 {
            return Err(fail(io::ErrorKind::Unsupported, "the driver cannot change it"));
        }
        Ok(bit_of(&self.active_features(names.len())?, bit))
    }

    /// The kernel's names of features, each at the place of its bit; some places are empty.
    fn feature_names(&self) -> Result<Vec<String>> {
        const WHAT: &str = "name the features of";
        // `struct ethtool_sset_info`: command, reserved, a mask of 64 bits, then one count.
        let mut info = [ETHTOOL_GSSET_INFO, 0, 0, 0, 0];
        let mask = (1u64 << ETH_SS_FEATURES).to_ne_bytes();
        (info[2], info[3]) = (word(&mask[..4]), word(&mask[4..]));
        self.ioctl(WHAT, &mut info)?;
        let count = info[4] as usize;
        // `struct ethtool_gstrings`: command, string set, count, then 32 bytes each.
        let mut strings = vec![0u32; 3 + count * ETH_GSTRING_LEN / 4];
        strings[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count as u32]);
        self.ioctl(WHAT, &mut strings)?;
        Ok(bytes_of(&strings[3..]).chunks_exact(ETH_GSTRING_LEN).map(text).collect())
    }

    /// The bits of the active features, of `count` that there are.
    fn active_features(&self, count: usize) -> Result<Vec<u32>> {
        // `struct ethtool_gfeatures`: command, number of blocks, then the blocks of available,
        // requested, active and never-changed bits.
        let blocks = count.div_ceil(32);
        let mut request = vec![0u32; 2 + 4 * blocks];
        request[0] = ETHTOOL_GFEATURES;
        request[1] = blocks as u32;
        self.ioctl("read the features of", &mut request)?;
        Ok(request[2..].chunks_exact(4).map(|block| block[2]).collect())
    }

    /// Runs one of the commands above, whose struct `data` is.
    fn ioctl(
        &self,
        what: impl Into<std::borrow::Cow<'static, str>>,
        data: &mut [u32],
    ) -> Result<i32> {
        let mut request = interface::ifreq(&self.name)?;
        request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
        // SAFETY: `request` is an ifreq whose data points to the command's whole struct, which the
        // callers of this private function lay out as linux/ethtool.h does. The kernel writes no
        // further: fixed structs have their size, GFEATURES and SFEATURES carry their number of
        // blocks, and GSTRINGS writes the count that GSSET_INFO returned, which for features is a
        // constant of the running kernel.
        check(unsafe {
            libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request)
        })
        .map_err(|cause| Error::new(what, cause).on(&*self.name))
    }
}

/// The queues that receive; `None` where the driver does not report them. Another error does not show that
/// the queues in use are those with which the interface was made.
fn receiving(channels: Result<Channels>) -> Result<Option<u32>> {
    match channels {
        Ok(channels) => Ok(Some(channels.rx + channels.combined).filter(|queues| *queues > 0)),
        Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn bit_of(blocks: &[u32], bit: usize) -> bool {
    blocks.get(bit / 32).is_some_and(|block| block >> (bit % 32) & 1 == 1)
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Four bytes as the word in whose place they are.
fn word(bytes: &[u8]) -> u32 {
    crate::netlink::number(bytes).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_features_but_no_channels() {
        let lo = Ethtool::open("lo").unwrap();
        let features = lo.features().unwrap();
        assert_eq!(features.get("loopback"), Some(&true));
        assert!(lo.channels().is_err());
        assert_eq!(lo.rx_queues().unwrap(), 1);
    }

    #[test]
    fn only_a_driver_that_reports_none_has_no_channels() {
        let failed = |errno| {
            receiving(Err(Error::new("count the channels of", io::Error::from_raw_os_error(errno))))
        };
        assert_eq!(failed(libc::EOPNOTSUPP).unwrap(), None);
        for errno in [libc::ENODEV, libc::EBUSY, libc::EINTR] {
            assert_eq!(failed(errno).unwrap_err().errno(), Some(errno));
        }
        let channels = |rx, combined| receiving(Ok(Channels { rx, tx: 1, combined })).unwrap();
        assert_eq!([channels(0, 0), channels(1, 0), channels(2, 4)], [None, Some(1), Some(6)]);
    }

    #[test]
    fn unknown_names_are_refused() {
        let lo = Ethtool::open("lo").unwrap();
        let error = lo.set_feature("no-such-feature", true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(Ethtool::open("no-such-if").unwrap().driver().unwrap_err().is_missing());
    }
}
