//! Queueing disciplines (tc(8)).

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use super::interface::index;
use super::request;
use crate::Result;

/// Lets up to `packets` packets wait at an interface until it can send them (`tc qdisc replace dev NAME root pfifo
/// limit PACKETS`). A virtual interface has no queue by itself and drops what it cannot send at once; a card has one.
///
/// # Errors
/// As [`index`], or `ENOENT` of a kernel without `pfifo`.
pub fn set_fifo(name: &str, packets: u32) -> Result<()> {
    let mut message = TcMessage::with_index(index(name)?.cast_signed());
    message.header.parent = TcHandle::ROOT;
    // The options of pfifo are no nested attributes but a `struct tc_fifo_qopt`.
    let limit = DefaultNla::new(TCA_OPTIONS, packets.to_ne_bytes().to_vec());
    message.attributes.extend([TcAttribute::Kind("pfifo".to_owned()), TcAttribute::Other(limit)]);
    let what = "set the transmit queue";
    request(what, libc::RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, &message)
        .map_err(|error| error.on(name))?;
    Ok(())
}

/// `linux/rtnetlink.h`.
const TCA_OPTIONS: u16 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::link::{VethEnd, create_veth};
    use crate::netns::Namespace;
    use crate::process;

    #[test]
    fn an_interface_has_a_queue_of_the_length() {
        if !process::has_net_admin() {
            return testkit::missing::lacks("CAP_NET_ADMIN, to make a veth");
        }
        let namespace = Namespace::new().unwrap();
        let answers = namespace.run(|| {
            create_veth(&VethEnd::new("near0"), &VethEnd::new("far0")).unwrap();
            set_fifo("near0", 777).unwrap();
            set_fifo("near0", 778).unwrap();
            assert!(set_fifo("none0", 1).unwrap_err().is_missing());
            request(
                "ask",
                libc::RTM_GETQDISC,
                netlink_packet_core::NLM_F_DUMP,
                &TcMessage::default(),
            )
        });
        let answers = answers.unwrap().unwrap();
        let has = |bytes: &[u8]| answers.iter().any(|a| a.windows(bytes.len()).any(|w| w == bytes));
        assert!(has(b"pfifo\0") && has(&778_u32.to_ne_bytes()), "{answers:?}");
    }
}
