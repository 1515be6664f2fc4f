//! `wharf doctor`: what this machine can do.

use crate::cli::DoctorArgs;
use crate::error::Error;

pub(crate) fn run(_: &DoctorArgs) -> Result<(), Error> {
    Err(Error::Usage("doctor is not in this build".to_owned()))
}
