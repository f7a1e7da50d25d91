//! The same language as `Lines`, read slowly: all at once, a byte at a time.

/// Command and line of each entry, or the line of an error.
pub fn lines(input: &[u8]) -> Vec<Result<(Vec<u8>, u64), u64>> {
    let input = input.strip_prefix(b"\xef\xbb\xbf").unwrap_or(input);
    let mut physical: Vec<&[u8]> = input.split(|&b| b == b'\n').collect();
    if physical.last().is_some_and(|last| last.is_empty()) {
        physical.pop();
    }
    let mut numbered = physical
        .into_iter()
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .zip(1..)
        .peekable();

    let mut found = Vec::new();
    while let Some((line, number)) = numbered.next() {
        if without_blanks(line).starts_with(b"#") {
            continue;
        }
        let mut text = Vec::new();
        let mut nul = None;
        let mut current = Some((line, number));
        while let Some((line, number)) = current {
            let goes_on = is_continued(line);
            let part = if goes_on { &line[..line.len() - 1] } else { line };
            if part.contains(&0) {
                nul = nul.or(Some(number));
            }
            text.extend_from_slice(part);
            // A command that has not begun yet begins on the next line.
            let begun = !without_blanks(&text).is_empty();
            current = if goes_on && begun { numbered.next() } else { None };
        }
        if let Some(number) = nul {
            found.push(Err(number));
        } else if !without_blanks(&text).is_empty() {
            found.push(Ok((without_blanks(&text).to_vec(), number)));
        }
    }
    found
}

/// Reads from the front, as a shell does: an escaped byte is never blank.
fn without_blanks(text: &[u8]) -> &[u8] {
    let is_blank = |b: &u8| *b == b' ' || *b == b'\t';
    let start = text.iter().take_while(|b| is_blank(b)).count();
    let (mut at, mut end) = (start, start);
    while at < text.len() {
        if text[at] == b'\\' && at + 1 < text.len() {
            at += 2;
            end = at;
        } else {
            at += 1;
            if !is_blank(&text[at - 1]) {
                end = at;
            }
        }
    }
    &text[start..end]
}

fn is_continued(line: &[u8]) -> bool {
    let mut escaped = false;
    for &byte in line {
        escaped = byte == b'\\' && !escaped;
    }
    escaped
}
