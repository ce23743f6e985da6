//! Goes through every world that can come about, checks each, and looks for an
//! end from each.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use ff_handover::coordinator::{Coordinator, Limits};
use ff_handover::{Outcome, ReloadEvent, ReloadState};

use super::model::{Life, Size, Step, World};

/// All limits are alike here: a time has passed or it has not.
const LIMITS: Limits = Limits {
    ready_timeout_us: 1 << 20,
    handover_timeout_us: 1 << 20,
    heartbeat_timeout_us: 1 << 20,
    settle_timeout_us: 1 << 20,
    drain_timeout_us: 1 << 20,
    quit_step_us: 1 << 20,
};

/// What was found.
#[derive(Debug)]
pub struct Explored {
    pub nodes: usize,
    pub edges: usize,
    pub ends: usize,
    /// States of the machine that were seen.
    pub states: BTreeSet<ReloadState>,
}

/// A world that should not be, and how it came about.
#[derive(Debug)]
pub struct Violation {
    pub what: String,
    pub trace: Vec<Step>,
}

/// Explores a world of `size` with `table`.
pub fn explore(size: Size, table: fn(ReloadState, ReloadEvent) -> Outcome) -> Result<Explored, Violation> {
    let coordinator = Coordinator { limits: LIMITS, table };
    let mut search = Search {
        coordinator,
        start: World::new(size),
        numbers: HashMap::new(),
        parents: Vec::new(),
        calm: Vec::new(),
        ends: Vec::new(),
        edges: 0,
        states: Default::default(),
    };
    search.run()?;
    search.every_node_has_an_end()?;
    Ok(Explored {
        nodes: search.numbers.len(),
        edges: search.edges,
        ends: search.ends.len(),
        states: search.states,
    })
}

struct Search {
    coordinator: Coordinator,
    start: World,
    /// Each node's number by 128 bits of hash: with 10⁸ nodes two of them meet
    /// with a probability of 10⁻²².
    numbers: HashMap<u128, u32>,
    /// From where, and by which step, each node was reached first.
    parents: Vec<(u32, Option<Step>)>,
    /// Edges that are no crash: (to, from).
    calm: Vec<(u32, u32)>,
    ends: Vec<u32>,
    edges: usize,
    states: BTreeSet<ReloadState>,
}

impl Search {
    fn run(&mut self) -> Result<(), Violation> {
        let start = self.start;
        self.numbers.insert(digest(&start), 0);
        self.parents.push((0, None));
        let mut frontier = vec![(0, start)];
        let mut next = Vec::new();
        // Breadth first, so that a violation comes with a short trace.
        while !frontier.is_empty() {
            let mut beyond = Vec::new();
            for (number, world) in frontier {
                world.successors(&self.coordinator, &mut next);
                check(&world, &self.coordinator).map_err(|what| self.violation(what, number))?;
                for slot in world.slots().iter().filter(|slot| slot.epoch != 0) {
                    self.states.insert(slot.attempt);
                }
                if next.iter().all(|(step, _)| step.is_crash() || *step == Step::Accept) {
                    check_end(&world).map_err(|what| self.violation(what, number))?;
                    self.ends.push(number);
                }
                for (step, world) in next.drain(..) {
                    self.edges += 1;
                    let fresh = self.numbers.len() as u32;
                    let to = match self.numbers.entry(digest(&world)) {
                        Entry::Occupied(known) => *known.get(),
                        Entry::Vacant(place) => {
                            beyond.push((fresh, world));
                            place.insert(fresh);
                            self.parents.push((number, Some(step)));
                            fresh
                        }
                    };
                    if !step.is_crash() {
                        self.calm.push((to, number));
                    }
                }
            }
            frontier = beyond;
        }
        Ok(())
    }

    /// Backwards from the ends: whoever is not met can never end.
    fn every_node_has_an_end(&mut self) -> Result<(), Violation> {
        let nodes = self.parents.len();
        self.calm.sort_unstable();
        let mut first = vec![0usize; nodes + 1];
        for (to, _) in &self.calm {
            first[*to as usize + 1] += 1;
        }
        for node in 0..nodes {
            first[node + 1] += first[node];
        }
        let mut ends = vec![false; nodes];
        let mut work = self.ends.clone();
        for end in &work {
            ends[*end as usize] = true;
        }
        while let Some(node) = work.pop() {
            for (_, from) in &self.calm[first[node as usize]..first[node as usize + 1]] {
                if !std::mem::replace(&mut ends[*from as usize], true) {
                    work.push(*from);
                }
            }
        }
        match ends.iter().position(|end| !end) {
            None => Ok(()),
            Some(node) => Err(self.violation("from here it never ends".to_owned(), node as u32)),
        }
    }

    fn violation(&self, what: String, number: u32) -> Violation {
        let mut trace = Vec::new();
        let mut at = number;
        while let (from, Some(step)) = self.parents[at as usize] {
            trace.push(step);
            at = from;
        }
        trace.reverse();
        let mut world = self.start;
        let mut next = Vec::new();
        for step in &trace {
            world.successors(&self.coordinator, &mut next);
            world = next.iter().find(|(taken, _)| taken == step).map_or(world, |(_, world)| *world);
        }
        Violation { what: format!("{what}\n{world:#?}"), trace }
    }
}

fn digest(world: &World) -> u128 {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        world.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    (half(1) << 64) | half(2)
}

/// What must be true of every world.
fn check(world: &World, coordinator: &Coordinator) -> Result<(), String> {
    // Invariant 1.
    for queue in 0..world.workers() {
        let consumers: Vec<_> = world
            .living()
            .filter(|process| process.polling & 1 << queue != 0)
            .map(|process| process.owner)
            .collect();
        if consumers.len() > 1 {
            return Err(format!("invariant 1: queue {queue} has the consumers {consumers:?}"));
        }
    }
    // Invariant 2: a living owner polls in its next pass. Of a dead one the
    // coordinator, once it knows, has something to do for as long as there is
    // somebody who could serve.
    let news = world.processes().iter().flatten().any(|process| process.life == Life::Dead);
    if world.coordinator_alive && world.in_flight.is_none() && !news && world.decision(coordinator).is_none()
    {
        let orphan = world.queues().iter().position(|owner| {
            owner.is_none_or(|owner| world.process(owner).is_none_or(|process| !process.is_alive()))
        });
        if let Some(queue) = orphan.filter(|_| could_serve(world)) {
            return Err(format!("invariant 2: nobody takes queue {queue} from the dead"));
        }
    }
    for (slot, line) in world.slots().iter().enumerate().filter(|(_, line)| line.epoch != 0) {
        // Invariant 4: before the flip every queue is with the old generation.
        if line.attempt == ReloadState::Spawning
            && world.queues().iter().flatten().any(|owner| owner.epoch == line.epoch)
        {
            return Err(format!("invariant 4: generation {} owns a queue while it is started", line.epoch));
        }
        // Invariant 5: nobody of a generation is told to quit before it was
        // relieved (or has failed to begin).
        let may_be_told = matches!(
            line.attempt,
            ReloadState::Draining
                | ReloadState::Quitting
                | ReloadState::Reclaiming
                | ReloadState::EndingNew
                | ReloadState::ReclaimingNew
        );
        let of_slot = world.of_slot(slot);
        if !may_be_told
            && let Some(process) =
                of_slot.iter().flatten().find(|process| process.told != 0 && !process.killed)
        {
            return Err(format!("invariant 5: {} was told to quit in {:?}", process.owner, line.attempt));
        }
        // ... and an attempt that goes back, or has not begun, leaves the old one active.
        if line.attempt == ReloadState::Spawning && world.active == Some(world.words().generation(slot)) {
            return Err(format!("invariant 5: generation {} is active while it is started", line.epoch));
        }
    }
    // Invariant 4: who receives has its listeners open: it is READY, and was not
    // told to quit. (Who is killed because it stalled receives nothing.)
    for process in world.living().filter(|process| process.polling != 0 && process.life == Life::Running) {
        if !process.ready || (process.told != 0 && !process.killed) {
            return Err(format!("invariant 4: {} receives and is about to end", process.owner));
        }
    }
    Ok(())
}

fn could_serve(world: &World) -> bool {
    world.living().any(|process| {
        process.ready && process.told == 0 && {
            let line = world.slots().iter().find(|line| line.epoch == process.owner.epoch);
            line.is_some_and(|line| {
                matches!(line.attempt, ReloadState::Idle | ReloadState::Settling | ReloadState::HandingOver)
            })
        }
    })
}

/// What must be true when nothing more happens by itself.
fn check_end(world: &World) -> Result<(), String> {
    let words = world.words();
    if let Some(line) = world.slots().iter().find(|line| line.attempt != ReloadState::Idle) {
        return Err(format!("the end: generation {} is left in {:?}", line.epoch, line.attempt));
    }
    if world.order.is_some() || world.target.is_some() {
        return Err("the end: an order or a target is left".to_owned());
    }
    let generations = world.slots().iter().filter(|line| line.epoch != 0).count();
    if generations != 1 || world.active != words.current() {
        return Err(format!("the end: {generations} generations, active {:?}", world.active));
    }
    let serving: Vec<_> = world.living().filter(|process| process.ready).collect();
    if let Some(process) =
        serving.iter().find(|process| Some(process.owner.epoch) != world.active.map(|it| it.epoch))
    {
        return Err(format!("the end: {} is left over", process.owner));
    }
    for (queue, owner) in world.queues().iter().enumerate() {
        let owner = owner.and_then(|owner| world.process(owner)).filter(|process| process.is_alive());
        if owner.is_none() && !serving.is_empty() {
            return Err(format!("the end: queue {queue} has no consumer"));
        }
        if let Some(owner) = owner.filter(|owner| owner.polling & 1 << queue == 0) {
            return Err(format!("the end: {} does not poll its queue {queue}", owner.owner));
        }
    }
    // Every crash left to nginx was made good: unless its master is dead, all
    // workers are there.
    if world.master_alive && serving.len() != world.workers() {
        return Err(format!("the end: {} of {} workers", serving.len(), world.workers()));
    }
    Ok(())
}
