use packhorse_model::SweepSpec;

use crate::Colour;
use crate::sweep::{Sweep, SweepError, SweepLanguage, TemplateProblem};

/// What the template gives with these parameters.
fn filled(template: &str) -> Result<String, SweepError> {
    let values = [
        ("a", "1"),
        ("b", "two"),
        ("learning-rate", "0.1"),
        (" a ", "blank"),
        ("a b", "ab"),
        ("0a", "z"),
        ("a]", "q"),
        ("é", "e"),
        ("-1", "m"),
    ];
    let parameters = values.map(|(name, value)| (name.to_owned(), vec![value.to_owned()]));
    let spec = SweepSpec {
        template: template.to_owned(),
        parameters: parameters.into(),
        ..SweepSpec::default()
    };
    let sweep = Sweep::new(&spec, SweepLanguage::Original)?;
    let command = sweep.command(0).unwrap();
    Ok(String::from_utf8(command).unwrap())
}

fn problem(template: &str) -> (u64, TemplateProblem, String) {
    match filled(template).unwrap_err() {
        SweepError::Template(error) => (error.column(), error.problem().clone(), error.hint()),
        other => panic!("{other}"),
    }
}

/// The right-hand side is what Python 3 prints.
#[test]
fn placeholders_and_braces_mean_what_they_mean_in_python() {
    for (template, wanted) in [
        ("plain", "plain"),
        ("", ""),
        ("100%", "100%"),
        ("{a}", "1"),
        ("{a}{b}", "1two"),
        ("x{a}y{b}z{a}", "x1ytwoz1"),
        ("{{", "{"),
        ("}}", "}"),
        ("{{}}", "{}"),
        ("{{a}}", "{a}"),
        ("{{{a}}}", "{1}"),
        ("{a}}}", "1}"),
        ("{{{{a", "{{a"),
        ("{learning-rate}", "0.1"),
        ("{ a }", "blank"),
        ("{a b}", "ab"),
        ("{0a}", "z"),
        ("{a]}", "q"),
        ("{é}", "e"),
        ("{-1}", "m"),
        ("${{HOME}} {a}", "${HOME} 1"),
        ("awk '{{print $1}}' {b}", "awk '{print $1}' two"),
    ] {
        assert_eq!(filled(template).as_deref(), Ok(wanted), "{template}");
    }
}

#[test]
fn what_python_refuses_is_refused_at_its_column() {
    for (template, column, wanted) in [
        ("{", 1, TemplateProblem::Unclosed),
        ("{a", 1, TemplateProblem::Unclosed),
        ("é {1a", 3, TemplateProblem::Unclosed),
        ("{a}{", 4, TemplateProblem::Unclosed),
        ("}", 1, TemplateProblem::Single),
        ("a}", 2, TemplateProblem::Single),
        ("{a}}", 4, TemplateProblem::Single),
        ("{{a}", 4, TemplateProblem::Single),
        ("{{{a}}", 6, TemplateProblem::Single),
        ("}{", 1, TemplateProblem::Single),
        ("{a{b}}", 1, TemplateProblem::Nested),
        ("x {\"lr\": {a}}", 3, TemplateProblem::Nested),
        ("{}", 1, TemplateProblem::Positional),
        ("{a} {0}", 5, TemplateProblem::Positional),
        ("{:>3}", 1, TemplateProblem::Positional),
        ("{.a}", 1, TemplateProblem::Positional),
    ] {
        let (at, problem, hint) = problem(template);
        assert_eq!((at, problem), (column, wanted), "{template}");
        assert!(hint.contains("{{") || hint.contains("}}"), "{hint}");
    }
}

#[test]
fn what_only_makes_sense_for_python_objects_is_refused() {
    for (template, column) in
        [("{a:.3f}", 3), ("{a:}", 3), ("{a!r}", 3), ("{a.b}", 3), ("{a[0]}", 3)]
    {
        let (at, problem, hint) = problem(template);
        assert_eq!(at, column, "{template}");
        assert!(
            matches!(
                problem,
                TemplateProblem::Format { .. }
                    | TemplateProblem::Conversion { .. }
                    | TemplateProblem::Attribute { .. }
            ),
            "{template}"
        );
        assert!(hint.contains("write {a}"), "{hint}");
    }
}

#[test]
fn a_placeholder_without_a_parameter_is_named_with_what_was_meant() {
    for (template, hint) in [
        ("x {learning_rat}", "did you mean {learning-rate}?"),
        ("{HOME}", "-p HOME"),
        ("echo ${HOME}", "${{HOME}}"),
        ("awk '{print $1}'", "{{ and }}"),
    ] {
        let error = filled(template).unwrap_err().to_string();
        assert!(error.contains("there is no parameter"), "{error}");
        assert!(error.contains(hint), "{error}");
    }
}

#[test]
fn the_message_points_at_the_place() {
    let refused = filled("train --lr {lr:.3f} --bs {bs}").unwrap_err();
    let SweepError::Template(error) = refused else {
        panic!("{refused}");
    };
    let wanted = "\
error: a placeholder cannot have a format
 --> template:1:15
  |
1 | train --lr {lr:.3f} --bs {bs}
  |               ^^^^ a format
  |
  = hint: write {lr}: values are put in as they are given";
    assert_eq!(error.render("template", Colour::Off), wanted);
}
