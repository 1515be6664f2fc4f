//! What a client asks for: a file, or a page that the responder makes of one. Of SPECweb99's requests ("SPECweb99 Release
//! 1.02", SPEC, July 2000, section 6) 70 % are for files; 12.45 % for pages with an ad, 0.15 % for the same by CGI, which
//! here are as those, and 12.6 % for pages with an ad that is for their user; 4.8 % post what registers a user.

use super::files::File;
use super::page::{ADS, Page, USERS};

/// Of so many requests, so many are for pages of each kind.
const ALL: u64 = 10_000;
const STANDARD: u64 = 1_245 + 15;
const CUSTOM: u64 = 1_260;
const POSTED: u64 = 480;

/// The page that a random number stands for, if it is any.
fn pick(draw: u64) -> Option<Page> {
    // Parts of the number that have little to do with each other.
    let [part, user, last_ad] =
        [draw % ALL, (draw >> 32) % u64::from(USERS), (draw >> 48) % u64::from(ADS)];
    let (user, last_ad) = (user as u32, last_ad as u32);
    match part {
        _ if part < STANDARD => Some(Page::Standard),
        _ if part < STANDARD + CUSTOM => Some(Page::Custom { user, last_ad }),
        _ if part < STANDARD + CUSTOM + POSTED => Some(Page::Posted { user }),
        _ => None,
    }
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) file: File,
    /// What is made of the file, if it is not the file itself.
    pub(super) page: Option<Page>,
}

impl Request {
    /// That which random numbers stand for: one for the file, and one for what is made of it, if that may be more than the
    /// file.
    pub(super) fn pick(file: u64, page: Option<u64>) -> Request {
        Request { file: File::pick(file), page: page.and_then(pick) }
    }

    /// It as HTTP has it.
    pub(super) fn text(self, is_last: bool) -> String {
        let last = if is_last { "Connection: close\r\n" } else { "" };
        let path = self.file.path();
        let Some(page) = self.page else {
            return format!("GET /{path} HTTP/1.1\r\nHost: server\r\n{last}\r\n");
        };
        let script = page.script();
        match page {
            Page::Standard => {
                format!("GET {script}?{path} HTTP/1.1\r\nHost: server\r\n{last}\r\n")
            }
            Page::Custom { user, last_ad } => format!(
                "GET {script}?{path} HTTP/1.1\r\nHost: server\r\n\
                 Cookie: user={user}&last_ad={last_ad}\r\n{last}\r\n"
            ),
            Page::Posted { user } => {
                let body = format!("file={path}&user={user}");
                let length = body.len();
                format!(
                    "POST {script} HTTP/1.1\r\nHost: server\r\n\
                     Content-Length: {length}\r\n{last}\r\n{body}"
                )
            }
        }
    }

    /// What the responder is asked for, by that script with such a query, cookie and body.
    pub(super) fn parse(script: &str, query: &str, cookie: &str, body: &str) -> Option<Request> {
        let number = |value: &str, below: u32| value.parse().ok().filter(|number| *number < below);
        let posted = Page::Posted { user: 0 }.script();
        let custom = Page::Custom { user: 0, last_ad: 0 }.script();
        let (path, page) = if script == Page::Standard.script() {
            (query, Page::Standard)
        } else if script == custom {
            let [user, last_ad] = fields(cookie, ["user", "last_ad"])?;
            let user = number(user, USERS)?;
            (query, Page::Custom { user, last_ad: number(last_ad, ADS)? })
        } else if script == posted {
            let [path, user] = fields(body, ["file", "user"])?;
            (path, Page::Posted { user: number(user, USERS)? })
        } else {
            return None;
        };
        Some(Request { file: File::parse(path)?, page: Some(page) })
    }

    /// How many bytes the answer has behind its header.
    pub(super) fn answer_len(self) -> usize {
        self.page.map_or(self.file.len(), |page| page.len(self.file))
    }
}

/// The values of two fields in that order.
fn fields<'a>(text: &'a str, names: [&str; 2]) -> Option<[&'a str; 2]> {
    let (first, second) = text.split_once('&')?;
    let value = |field: &'a str, name| field.strip_prefix(name)?.strip_prefix('=');
    Some([value(first, names[0])?, value(second, names[1])?])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap is the failed test
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pages_are_asked_for_as_specweb99_does() {
        const MANY: u64 = 200_000;
        let random = degen::Random::new(3);
        let pages: Vec<Option<Page>> = (0..MANY).map(|n| pick(random.at(n))).collect();
        let percent = |is: &dyn Fn(&Option<Page>) -> bool| {
            pages.iter().filter(|page| is(page)).count() as f64 * 100.0 / MANY as f64
        };
        for (found, wanted) in [
            (percent(&|page| page.is_none()), 70.0),
            (percent(&|page| matches!(page, Some(Page::Standard))), 12.6),
            (percent(&|page| matches!(page, Some(Page::Custom { .. }))), 12.6),
            (percent(&|page| matches!(page, Some(Page::Posted { .. }))), 4.8),
        ] {
            assert!((found - wanted).abs() < 0.3, "{found} {wanted}");
        }
    }

    /// What a server makes of a request: the script, its query, a cookie, and the body.
    fn served(text: &str) -> (String, String, String, String) {
        let (header, body) = text.split_once("\r\n\r\n").unwrap();
        let target = header.split(' ').nth(1).unwrap();
        let (script, query) = target.split_once('?').unwrap_or((target, ""));
        let field = |name| header.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
        if let Ok(length) = field("Content-Length: ").parse::<usize>() {
            assert_eq!(length, body.len());
        }
        (script.to_owned(), query.to_owned(), field("Cookie: ").to_owned(), body.to_owned())
    }

    proptest! {
        #[test]
        fn the_responder_is_asked_for_what_a_client_asks_for(
            file in any::<u64>(), page in 0..STANDARD + CUSTOM + POSTED, high in any::<u32>(),
            is_last in any::<bool>(),
        ) {
            // A multiple of what all are leaves the kind as it is.
            let draw = u64::from(high) * ALL + page;
            let request = Request::pick(file, Some(draw));
            prop_assert!(request.page.is_some());
            let text = request.text(is_last);
            prop_assert_eq!(text.contains("Connection: close\r\n"), is_last);
            let (script, query, cookie, body) = served(&text);
            prop_assert_eq!(Request::parse(&script, &query, &cookie, &body), Some(request));
        }

        #[test]
        fn any_text_is_a_request_for_a_file_or_none(
            script in "/dynamic/(standard|custom|post|x)", query in "[0-9/.-]{0,8}|.{0,40}",
            cookie in "user=[0-9]{0,7}&last_ad=[0-9]{0,7}|.{0,40}",
            body in "file=[0-9/.-]{0,8}&user=[0-9]{0,7}|.{0,40}",
        ) {
            if let Some(request) = Request::parse(&script, &query, &cookie, &body) {
                let path = request.file.path();
                prop_assert!(query == path || body.contains(&path));
            }
        }
    }
}
