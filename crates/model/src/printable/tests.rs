use super::*;

fn filtered(pieces: &[&[u8]]) -> Vec<u8> {
    let mut filter = TerminalFilter::default();
    let mut out = Vec::new();
    for piece in pieces {
        filter.push(piece, &mut out);
    }
    filter.finish(&mut out);
    out
}

fn shown_text(bytes: &[u8]) -> String {
    String::from_utf8(filtered(&[bytes])).unwrap()
}

/// Fails if a terminal would obey anything in it but a colour.
fn assert_harmless(bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).expect("nothing but UTF-8 comes out");
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c == '\x1b' {
            let numbers = rest.strip_prefix('[').expect("no escape but of a colour");
            let end = numbers.find(|c: char| !matches!(c, '0'..='9' | ';' | ':'));
            let end = end.expect("a colour has an end");
            assert_eq!(numbers.as_bytes()[end], b'm', "{text:?}");
            rest = &numbers[end + 1..];
        } else {
            assert!(matches!(c, '\n' | '\r' | '\t' | '\x08') || shown(c) == c, "{text:?}");
        }
    }
}

#[test]
fn what_controls_a_terminal_becomes_visible_and_colours_stay() {
    for (bytes, wanted) in [
        (&b"plain \xc3\xa4\tx\r\n"[..], "plain ä\tx\r\n"),
        (b"\x1b[1;31mred\x1b[0m\n", "\x1b[1;31mred\x1b[0m\n"),
        (b"\x1b[38;2;1;2;3mred", "\x1b[38;2;1;2;3mred\x1b[0m"),
        (b"\x1b[38:5:9mred\x1b[m", "\x1b[38:5:9mred\x1b[m"),
        // The clipboard, the title, the screen, the keyboard's mode, a private mode.
        (b"\x1b]52;c;ZXZpbA==\x07", "␛]52;c;ZXZpbA==␇"),
        (b"\x1b]0;title\x1b\\", "␛]0;title␛\\"),
        (b"\x1b[2J\x1bc", "␛[2J␛c"),
        (b"\x1b[>4;2m", "␛[>4;2m"),
        (b"\x1b[?25l", "␛[?25l"),
        (b"\x1b[1\x1b[31mx", "␛[1\x1b[31mx\x1b[0m"),
        // C1, as bytes and as characters.
        (b"\x9b31m\x9d0;t\x9c", "\u{fffd}31m\u{fffd}0;t\u{fffd}"),
        ("\u{9b}31m\u{85}".as_bytes(), "\u{fffd}31m\u{fffd}"),
        ("exe.\u{202e}txt\u{2066}".as_bytes(), "exe.\u{fffd}txt\u{fffd}"),
        ("می\u{200c}خواهم 👩\u{200d}💻".as_bytes(), "می\u{200c}خواهم 👩\u{200d}💻"),
        (b"\0\x0e\x7f\xff\xc3", "␀␎␡\u{fffd}\u{fffd}"),
    ] {
        assert_eq!(shown_text(bytes), wanted);
    }
    let long = format!("\x1b[{}m", "1".repeat(1000));
    assert_eq!(shown_text(long.as_bytes()), long.replace('\x1b', "␛"));
}

#[test]
fn no_bytes_in_any_pieces_get_more_than_colours_through() {
    // Every sequence of up to four of these, cut everywhere: whatever a terminal obeys
    // begins with one of them.
    let pieces: [&[u8]; 13] = [
        b"\x1b",
        b"[",
        b"]",
        b"1",
        b";",
        b"m",
        b"?",
        b"\x9b",
        b"\xc2",
        b"\xe2\x80",
        b"\xae",
        b"\n",
        b"\x07",
    ];
    for number in 0..pieces.len().pow(4) {
        let chosen = (0..4).map(|place| pieces[number / pieces.len().pow(place) % pieces.len()]);
        let chosen: Vec<&[u8]> = chosen.collect();
        let whole = chosen.concat();
        let out = filtered(&[&whole]);
        assert_harmless(&out);
        assert_eq!(filtered(&chosen), out, "{whole:?}");
    }
}

/// What sequences are made of, and what C1 and turning characters are in UTF-8.
const LIKELY: &[u8] = b"\x1b\x1b[[];:0123mJ\x07\x9b\xc2\x9d\xe2\x80\xae\xf0\x9f\r\n\x08";

#[test]
fn random_bytes_are_harmless_wherever_they_are_cut() {
    // Bytes from a generator with a fixed beginning: the test is the same every time.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..20_000 {
        let length = next() % 40;
        let bytes: Vec<u8> = (0..length)
            .map(|_| match next() {
                n if n % 4 == 0 => n.to_be_bytes()[0],
                n => LIKELY[usize::try_from(n >> 8).unwrap() % LIKELY.len()],
            })
            .collect();
        let out = filtered(&[&bytes]);
        assert_harmless(&out);
        let cut = usize::try_from(next()).unwrap() % (bytes.len() + 1);
        assert_eq!(filtered(&[&bytes[..cut], &bytes[cut..]]), out, "{bytes:?} cut at {cut}");
        let line = String::from_utf8_lossy(&bytes);
        let line = printable_output(&line);
        assert_harmless(line.as_bytes());
        assert!(!line.contains(['\n', '\r', '\x08']), "{line:?}");
    }
}

#[test]
fn nothing_is_kept_back_for_long() {
    let mut filter = TerminalFilter::default();
    let mut out = Vec::new();
    filter.push(b"\x1b[", &mut out);
    for _ in 0..1_000 {
        filter.push(b"1", &mut out);
        assert!(filter.pending.len() < 100);
    }
}

#[test]
fn a_line_of_output_keeps_its_colours_to_itself() {
    for (line, wanted) in [
        ("loss 0.1", "loss 0.1"),
        ("\x1b[32mgood", "\x1b[32mgood\x1b[0m"),
        (" 10%\r 50%\r100%\r", "100%"),
        ("\r", ""),
        ("a\x08b\x1b[Ac", "a␈b␛[Ac"),
    ] {
        assert_eq!(printable_output(line), wanted);
    }
}

#[test]
fn printable_text_is_one_line_without_colours() {
    assert_eq!(printable("a\x1b[1mb\nc\td\u{202e}"), "a␛[1mb␊c d\u{fffd}");
    let mut text = String::new();
    push_printable(&mut text, b"a\xffb\n");
    assert_eq!(text, "a\u{fffd}b␊");
}
