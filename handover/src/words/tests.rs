use super::*;

#[test]
fn every_word_comes_back() {
    let generation = EpochSlot { epoch: 7, slot: 3 };
    assert_eq!(EpochSlot::from_word(generation.word()), Some(generation));
    assert_eq!(EpochSlot::from_word(3), None);
    for order in [ParkOrder::HandOver, ParkOrder::GiveBack] {
        let park = ParkWord { epoch: 9, order };
        assert_eq!(ParkWord::from_word(park.word()), Some(park));
    }
    for state in ReloadState::ALL {
        let fsm = FsmWord { epoch: 2, state };
        assert_eq!(FsmWord::from_word(fsm.word()), fsm);
    }
    for state in GenerationState::ALL {
        assert_eq!(GenerationState::from_number(state.number()), state);
    }
}

#[test]
fn words_of_another_version_are_safe() {
    assert_eq!(ParkWord::from_word((4 << 32) | 9), None);
    assert_eq!(FsmWord::from_word((4 << 32) | 99).state, ReloadState::Idle);
    assert_eq!(GenerationState::from_number(99), GenerationState::Aborted);
}
