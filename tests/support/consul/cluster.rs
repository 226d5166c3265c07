//! Several Consul servers that elect a leader.

use std::ops::Deref;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Agent, AgentOptions, PATIENCE};

/// The timeout of the question for the leader, which a paused agent does not answer.
const IMPATIENT: Duration = Duration::from_millis(500);

/// Several agents; used as a slice of them (`cluster[0].kill9()`, `cluster.iter()`).
pub struct Cluster(Vec<Agent>);

impl Cluster {
    /// Starts the agents, and returns when each of them accepts writes.
    pub fn start(n: usize) -> Cluster {
        for _ in 0..10 {
            let agents = (0..n).map(|_| AgentOptions::default().not_yet_up());
            let mut cluster = Cluster(agents.collect());
            cluster.write_configs();
            match cluster.launch() {
                Ok(()) => return cluster,
                // As for a single agent: a program that does not know of our claims was faster.
                Err(why) if why.contains("address already in use") => continue,
                Err(why) => panic!("{why}"),
            }
        }
        panic!("ten sets of ports in a row were taken by others");
    }

    /// The index of the leader, as soon as a running agent says that it leads.
    pub fn leader(&self) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let leads = |agent: &Agent| agent.is_up() && agent.leads();
            if let Some(leader) = self.iter().position(leads) {
                return leader;
            }
            assert!(Instant::now() < deadline, "nobody leads");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts all agents that are down at once. One of three alone would never accept writes.
    pub fn start_again(&self) {
        if let Err(why) = self.launch() {
            panic!("{why}");
        }
    }

    fn launch(&self) -> Result<(), String> {
        for agent in self.iter().filter(|agent| !agent.is_up()) {
            agent.spawn();
        }
        self.iter().try_for_each(Agent::until_it_takes_writes)
    }

    fn write_configs(&mut self) {
        let gossip = |agent: &Agent| format!("127.0.0.1:{}", agent.ports[3].number());
        let all: Vec<String> = self.iter().map(gossip).collect();
        for (place, agent) in self.0.iter_mut().enumerate() {
            agent.options.config = json!({
                "bootstrap_expect": all.len(), "node_name": format!("test-{place}"),
                "retry_join": all, "retry_interval": "1s",
                // A killed server comes back, and stays a member until then.
                "autopilot": {"cleanup_dead_servers": false},
            });
            agent.write_config();
        }
    }
}

impl Agent {
    /// Returns true if this server says that it leads. A server that was cut off may still say so until it notices.
    fn leads(&self) -> bool {
        let me = format!("\"127.0.0.1:{}\"", self.ports[2].number());
        let leader = self.try_ask_within("GET", "/v1/status/leader", "", IMPATIENT);
        leader.is_ok_and(|(_, leader)| leader.trim() == me)
    }
}

impl Deref for Cluster {
    type Target = [Agent];

    fn deref(&self) -> &[Agent] {
        &self.0
    }
}
