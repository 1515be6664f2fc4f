//! The colours and fonts of drawings and page, on light and on dark ground.

use std::fmt::Write as _;

/// How many colours series have before the first returns.
pub(crate) const COLOURS: usize = 6;

/// Colours as CSS writes them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    /// Around the drawings.
    page: &'static str,
    /// What is drawn and written upon.
    ground: &'static str,
    ink: &'static str,
    /// Text that comes second: ticks, captions.
    muted: &'static str,
    /// Lines that no one needs to see to read the drawing.
    grid: &'static str,
    /// Links.
    accent: &'static str,
    series: [&'static str; COLOURS],
}

/// The palette of Okabe and Ito, made for all kinds of colour vision; its three lightest colours do
/// not show on white, and a wine red and the ink stand for them.
pub(crate) const LIGHT: Theme = Theme {
    page: "#f4f5f7",
    ground: "#ffffff",
    ink: "#1f2328",
    muted: "#57606a",
    grid: "#dde2e7",
    accent: "#0b5cad",
    series: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#882255", "#24292f"],
};

/// The same palette with its light blue, its yellow and white.
pub(crate) const DARK: Theme = Theme {
    page: "#0d1117",
    ground: "#161b22",
    ink: "#e6edf3",
    muted: "#a3adb8",
    grid: "#343c47",
    accent: "#79b8ff",
    series: ["#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#f0e442", "#ffffff"],
};

/// What of drawings does not depend on the theme. What has a series' colour takes it from `color`,
/// which programs that know little CSS can follow as well.
pub(crate) const SHAPES: &str = "\
.plot text{font:16px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;\
fill:currentColor}
.plot .title{font-weight:600}
.plot .middle{text-anchor:middle}
.plot .end{text-anchor:end}
.plot .stroke{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}
.plot .thin{stroke:currentColor;stroke-width:1}
.plot .dashed{stroke-dasharray:6 4}
.plot .mark{fill:currentColor;stroke-width:1.5}
.plot .hollow{stroke:currentColor;stroke-width:2}
.plot .bar{fill:currentColor;fill-opacity:.3;stroke:currentColor;stroke-width:2}
.plot .open{stroke:currentColor;stroke-width:2;stroke-dasharray:6 4}
";

impl Theme {
    /// The rules for drawings inside of what `scope` selects (nothing, or a selector and a space).
    pub(crate) fn drawing(&self, scope: &str) -> String {
        let Self { ground, ink, muted, grid, .. } = self;
        let mut rules = format!(
            "{scope}.plot{{color:{ink}}}\
             {scope}.plot .muted{{color:{muted}}}\
             {scope}.plot .grid{{color:{grid}}}\
             {scope}.plot .ground,{scope}.plot .hollow,{scope}.plot .open{{fill:{ground}}}\
             {scope}.plot .mark{{stroke:{ground}}}"
        );
        for (at, colour) in self.series.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = write!(rules, "{scope}.plot .s{at}{{color:{colour}}}");
        }
        rules + "\n"
    }

    /// The colours as variables for the style sheet of a page, set on what `selector` selects.
    pub(crate) fn variables(&self, selector: &str) -> String {
        let Self { page, ground, ink, muted, grid, accent, .. } = self;
        format!(
            "{selector}{{--page:{page};--ground:{ground};--ink:{ink};--muted:{muted};\
             --grid:{grid};--accent:{accent}}}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Colour = [f64; 3];

    /// What the kinds of colour vision make of linear red, green and blue (Machado, Oliveira and
    /// Fernandes 2009, severity 1).
    const VISIONS: [(&str, [Colour; 3]); 4] = [
        ("common", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        (
            "protanopia",
            [
                [0.152_286, 1.052_583, -0.204_868],
                [0.114_503, 0.786_281, 0.099_216],
                [-0.003_882, -0.048_116, 1.051_998],
            ],
        ),
        (
            "deuteranopia",
            [
                [0.367_322, 0.860_646, -0.227_968],
                [0.280_085, 0.672_501, 0.047_413],
                [-0.011_820, 0.042_940, 0.968_881],
            ],
        ),
        (
            "tritanopia",
            [
                [1.255_528, -0.076_749, -0.178_779],
                [-0.078_411, 0.930_809, 0.147_602],
                [0.004_733, 0.691_367, 0.303_900],
            ],
        ),
    ];

    fn times(matrix: &[Colour; 3], colour: Colour) -> Colour {
        matrix.map(|row| row.iter().zip(colour).map(|(m, c)| m * c.clamp(0.0, 1.0)).sum())
    }

    fn linear(css: &str) -> Colour {
        [1, 3, 5].map(|at| {
            let value = f64::from(u8::from_str_radix(&css[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        })
    }

    /// WCAG 2's contrast ratio.
    fn contrast(one: &str, other: &str) -> f64 {
        let luminance = |css| {
            let [red, green, blue] = linear(css);
            0.2126 * red + 0.7152 * green + 0.0722 * blue
        };
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    /// CIE 1976's difference.
    fn difference(one: Colour, other: Colour) -> f64 {
        let lab = |colour| {
            let xyz = times(
                &[[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]],
                colour,
            );
            let root = |part: f64| {
                if part > 0.008_856 { part.cbrt() } else { 7.787 * part + 16.0 / 116.0 }
            };
            let [x, y, z] = [root(xyz[0] / 0.950_47), root(xyz[1]), root(xyz[2] / 1.088_83)];
            [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
        };
        let squares = lab(one).into_iter().zip(lab(other)).map(|(a, b)| (a - b).powi(2));
        squares.sum::<f64>().sqrt()
    }

    #[test]
    fn everything_shows_on_its_ground() {
        for theme in [LIGHT, DARK] {
            for series in theme.series {
                assert!(contrast(series, theme.ground) >= 3.0, "{series} on {}", theme.ground);
            }
            for text in [theme.ink, theme.muted, theme.accent] {
                for ground in [theme.ground, theme.page] {
                    assert!(contrast(text, ground) >= 4.5, "{text} on {ground}");
                }
            }
        }
    }

    #[test]
    fn all_kinds_of_colour_vision_tell_the_series_apart() {
        for theme in [LIGHT, DARK] {
            for (vision, matrix) in VISIONS {
                for (at, one) in theme.series.iter().enumerate() {
                    for other in &theme.series[at + 1..] {
                        let seen = [one, other].map(|css| times(&matrix, linear(css)));
                        let apart = difference(seen[0], seen[1]);
                        assert!(apart >= 14.0, "{vision}: {one} and {other}: {apart:.1}");
                    }
                }
            }
        }
    }
}
