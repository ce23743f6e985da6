use super::*;

fn check(expectation: &mut Expectation, pieces: &[&[u8]]) -> Result<(), WrongBody> {
    let mut check = BodyCheck::default();
    check.start();
    for piece in pieces {
        check.take(piece, expectation)?;
    }
    check.finish(expectation)
}

#[test]
fn the_first_body_is_the_reference() {
    let mut expectation = Expectation::first();
    check(&mut expectation, &[b"hel", b"lo"]).unwrap();
    check(&mut expectation, &[b"hello"]).unwrap();
    assert_eq!(check(&mut expectation, &[b"hell", b"a"]), Err(WrongBody { at: 4 }));
    assert_eq!(check(&mut expectation, &[b"hell"]), Err(WrongBody { at: 4 }));
    assert_eq!(check(&mut expectation, &[b"hello", b"!"]), Err(WrongBody { at: 5 }));
    assert!(check(&mut expectation, &[]).is_err());
}

#[test]
fn an_empty_first_body_is_a_reference_too() {
    let mut expectation = Expectation::first();
    check(&mut expectation, &[]).unwrap();
    check(&mut expectation, &[]).unwrap();
    assert!(check(&mut expectation, &[b"x"]).is_err());
}

#[test]
fn bodies_that_began_before_the_reference_was_known() {
    let mut expectation = Expectation::first();
    let (mut a, mut b, mut c) = (BodyCheck::default(), BodyCheck::default(), BodyCheck::default());
    for check in [&mut a, &mut b, &mut c] {
        check.start();
        check.take(b"he", &expectation).unwrap();
    }
    a.take(b"llo", &expectation).unwrap();
    a.finish(&mut expectation).unwrap();
    b.take(b"llo", &expectation).unwrap();
    b.finish(&mut expectation).unwrap();
    c.take(b"lp!", &expectation).unwrap();
    c.finish(&mut expectation).unwrap_err();
    b.start();
    b.take(b"hello", &expectation).unwrap();
    b.finish(&mut expectation).unwrap();
}

#[test]
fn one_of_several_but_not_a_mixture() {
    let mut expectation = Expectation::one_of(vec![b"old and long".to_vec(), b"new".to_vec()]).unwrap();
    check(&mut expectation, &[b"old ", b"and long"]).unwrap();
    check(&mut expectation, &[b"n", b"ew"]).unwrap();
    check(&mut expectation, &[b"old", b"new"]).unwrap_err();
    check(&mut expectation, &[b"old"]).unwrap_err();
    check(&mut expectation, &[b"newer"]).unwrap_err();
}

#[test]
fn one_of_sixty_four_and_no_more() {
    let bodies = |count: u8| (0..count).map(|i| vec![i]).collect::<Vec<_>>();
    let mut expectation = Expectation::one_of(bodies(64)).unwrap();
    check(&mut expectation, &[&[63]]).unwrap();
    check(&mut expectation, &[&[64]]).unwrap_err();
    Expectation::one_of(bodies(65)).unwrap_err();
    Expectation::one_of(vec![]).unwrap_err();
}

#[test]
fn anything_goes() {
    let mut expectation = Expectation::any();
    check(&mut expectation, &[b"a"]).unwrap();
    check(&mut expectation, &[b"b"]).unwrap();
}
