//! Who may ask for `mps`.

use serde::Deserialize;

use crate::facts::JobFacts;
use crate::pattern::Pattern;

/// One way to be admitted: all that it names must fit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Allow {
    /// Names of users. Empty: any, as with the others.
    pub users: Vec<Pattern>,
    pub accounts: Vec<Pattern>,
    pub partitions: Vec<Pattern>,
    /// Reservations. If there are any, a job outside all reservations does not fit.
    pub reservations: Vec<Pattern>,
    /// The largest `mps` of one job on one node.
    pub most: Option<u64>,
}

/// Why a job may not have `mps`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing admits it at all.
    #[error(
        "mps is not allowed for user {user}, account {account}, partition {partition}, reservation {reservation}\nhint: ask whoever runs this cluster in which reservations or accounts it is"
    )]
    NotAdmitted {
        user: String,
        /// The account, or `none`.
        account: String,
        partition: String,
        /// The reservation, or `none`.
        reservation: String,
    },
    /// It would be admitted with less.
    #[error("mps:{asked} is too much: at most mps:{most} is allowed here")]
    TooMuch {
        asked: u64,
        /// What it could have.
        most: u64,
    },
}

impl Allow {
    fn fits(&self, job: &JobFacts) -> bool {
        // Slurm takes several partitions and reservations, with commas: all must fit.
        let all_fit = |patterns: &[Pattern], names: &str| {
            let mut names = names.split(',');
            names.all(|name| Pattern::any(patterns, name))
        };
        let fits = |patterns: &[Pattern], names: Option<&str>| {
            patterns.is_empty() || names.is_some_and(|names| all_fit(patterns, names))
        };
        fits(&self.users, Some(&job.user))
            && fits(&self.accounts, job.account.as_deref())
            && fits(&self.partitions, job.partition.as_deref())
            && fits(&self.reservations, job.reservation.as_deref())
    }
}

/// Whether a job with this share is admitted by one of the rules.
pub fn admit(rules: &[Allow], job: &JobFacts, share: u64) -> Result<(), Refusal> {
    let mut most = None;
    for allow in rules.iter().filter(|allow| allow.fits(job)) {
        match allow.most {
            Some(limit) if share > limit => most = most.max(Some(limit)),
            _ => return Ok(()),
        }
    }
    let named = |name: &Option<String>| name.clone().unwrap_or_else(|| "none".to_owned());
    match most {
        _ if rules.is_empty() => Ok(()),
        Some(most) => Err(Refusal::TooMuch { asked: share, most }),
        None => Err(Refusal::NotAdmitted {
            user: job.user.clone(),
            account: named(&job.account),
            partition: named(&job.partition),
            reservation: named(&job.reservation),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<Allow> {
        #[derive(Deserialize)]
        struct Rules {
            allow: Vec<Allow>,
        }
        toml::from_str::<Rules>(text).unwrap().allow
    }

    fn job(user: &str, account: &str, reservation: Option<&str>) -> JobFacts {
        JobFacts {
            job: 1,
            user: user.to_owned(),
            account: Some(account.to_owned()),
            partition: Some("gpu".to_owned()),
            reservation: reservation.map(str::to_owned),
            ..JobFacts::default()
        }
    }

    #[test]
    fn without_rules_everybody_may() {
        assert_eq!(admit(&[], &job("a", "b", None), 1000), Ok(()));
    }

    #[test]
    fn one_that_admits_is_enough_and_each_must_fit_in_all() {
        let rules = rules(
            "[[allow]]\naccounts = [\"staff\"]\n\
             [[allow]]\nusers = [\"stud*\"]\nreservations = [\"course_*\"]\nmost = 64\n",
        );
        let ok = |job: &JobFacts, share| admit(&rules, job, share);
        assert_eq!(ok(&job("eve", "staff", None), 1280), Ok(()));
        let student = job("stud7", "students", Some("course_ml"));
        assert_eq!(ok(&student, 64), Ok(()));
        assert_eq!(ok(&student, 65), Err(Refusal::TooMuch { asked: 65, most: 64 }));
        for other in [
            job("stud7", "students", None),
            job("stud7", "students", Some("maintenance")),
            job("eve", "students", Some("course_ml")),
        ] {
            let refused = ok(&other, 1).unwrap_err();
            assert!(matches!(refused, Refusal::NotAdmitted { .. }), "{refused}");
        }
    }

    #[test]
    fn the_rule_of_the_seed_refuses_what_is_in_no_reservation_of_a_course() {
        let rules =
            rules("[[allow]]\nreservations = [\"*jhl_homework_gpu*\", \"*jupyterhub_course_*\"]\n");
        for (reservation, may) in [
            (None, false),
            (Some("jhl_homework_gpu"), true),
            (Some("jupyterhub_course_ml"), true),
            (Some("old_jupyterhub_course_"), true),
            (Some("jhl_homework_gpu,jupyterhub_course_ml"), true),
            (Some("jupyterhub_course_ml,maintenance"), false),
            (Some("jupyterhub"), false),
            (Some("maintenance"), false),
        ] {
            let admitted = admit(&rules, &job("a", "b", reservation), 1);
            assert_eq!(admitted.is_ok(), may, "{reservation:?}");
        }
    }
}
