//! The browser's checks report the faults of a faulty page, and none of a good one.

use testkit::browser::look_at;
use testkit::missing::lacks;

const FAULTY: &str = r##"<!doctype html>
<html><head><title></title><meta name="viewport" content="width=device-width"></head><body style="margin:0;background:#fff">
<div style="width:900px;height:1px"></div>
<p style="font-size:9px;color:#000">small</p>
<p style="color:#ccc;background:#fff">pale</p>
<p style="position:absolute;top:200px">under</p><p style="position:absolute;top:205px">over</p>
<svg width="200" height="40"><text x="180" y="20">leaving the drawing</text></svg>
<a id="twice" href="#nowhere">link</a><i id="twice">twin</i>
<details><summary>more</summary><p style="color:#eee">folded</p></details>
<img alt="elsewhere" src="http://127.0.0.1:9/picture.png">
<script>console.error("told"); missing();</script>
</body></html>"##;

const EXPECTED: [&str; 15] = [
    "\"small\" is 9.0 px small",
    "\"pale\" is pale",
    "\"under\" lies on \"over\"",
    "\"leaving the drawing\" leaves its drawing",
    "\"folded\" is pale",
    "the page is 900 px wide",
    "two elements are called twice",
    "#nowhere is nowhere",
    "a picture has no words",
    "does not say its language",
    "has no title",
    "#absent is not seen",
    "http://127.0.0.1:9/picture.png is fetched",
    "on the console:",
    "a script fails:",
];

#[test]
fn every_fault_is_found() {
    let Some(faults) = look_at("faulty", FAULTY, &[1000, 390], &["#absent"]).unwrap() else {
        return lacks("chromium");
    };
    let reported: Vec<String> = faults.iter().map(ToString::to_string).collect();
    for expected in EXPECTED {
        assert!(reported.iter().any(|fault| fault.contains(expected)), "{expected}: {reported:#?}");
    }
    // In a wide window the page is not too wide; everything else is as wrong.
    assert!(
        !reported.iter().any(|fault| fault.starts_with("1000 px") && fault.contains("px wide"))
    );
}

#[test]
fn a_page_without_faults_has_none() {
    let page = "<!doctype html><html lang=en><title>Fine</title><link rel=icon href='data:,'>\
        <meta name=viewport content='width=device-width'><p id=here>Nothing is wrong here.</p></html>";
    let Some(faults) = look_at("fine", page, &[390], &["#here"]).unwrap() else {
        return lacks("chromium");
    };
    assert_eq!(faults, []);
}
