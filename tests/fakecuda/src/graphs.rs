//! Graphs. A launched one takes what its nodes take, one by one.

use crate::Answer;
use crate::arguments::{In, Out};
use crate::call::{Call, Driver, answered, driver_functions};
use crate::clock::{D2D, SET, took};
use crate::code::{INVALID_HANDLE, INVALID_VALUE};
use crate::layouts::{AllocNode, SetNode, Volume};
use crate::list::Listed;
use crate::memory::{Kind, Where, room};
use crate::streams::Default::{self, Legacy, Own};
use crate::tap::{Run, What};

#[derive(Clone, Copy)]
struct Step {
    what: What,
    took: i64,
    bytes: u64,
    number: u64,
}

#[derive(Clone)]
pub struct Graph {
    memory: u64,
    steps: Vec<Step>,
}

impl Listed for Graph {
    const KIND: u64 = 0x5c08;
}

impl Graph {
    pub fn clear(&mut self) {
        self.memory = 0;
        self.steps.clear();
    }
}

/// A graph that can be launched.
pub struct Exec {
    graph: Graph,
    live: bool,
}

impl Listed for Exec {
    const KIND: u64 = 0x5c09;
}

impl Driver {
    pub fn new_graph(&mut self) -> u64 {
        self.graphs.add(Graph { memory: 0, steps: Vec::new() })
    }

    pub fn add_step(&mut self, graph: u64, what: What, took: i64, bytes: u64) -> Answer {
        self.node_numbers += 1;
        let number = self.node_numbers;
        self.graph(graph)?.steps.push(Step { what, took, bytes, number });
        Ok(())
    }

    /// What a stream does that is captured.
    pub fn add_captured(&mut self, graph: u64, what: What, bytes: u64) -> Answer {
        self.add_step(graph, what, took(bytes, if what == What::Set { SET } else { D2D }), bytes)
    }

    /// Memory of a graph has its address at once, and is taken while the graph is instantiated.
    pub fn add_memory(&mut self, graph: u64, len: u64) -> Result<u64, i32> {
        self.graph(graph)?.memory += len;
        let p = room(len, Where::Anywhere);
        self.add_block(p, len, Kind::OfGraph);
        Ok(p)
    }

    pub fn is_of_graph(&self, p: u64) -> Answer {
        self.block(p).filter(|b| b.kind == Kind::OfGraph).map(|_| ()).ok_or(INVALID_VALUE)
    }

    fn exec(&mut self, e: u64) -> Result<&mut Exec, i32> {
        self.execs.get_mut(e).ok_or(INVALID_HANDLE)
    }
}

fn instantiate(call: &Call, e: Out<u64>, g: u64) -> Answer {
    call.make(|driver| {
        let (_, device) = driver.current()?;
        let graph = driver.graph(g)?.clone();
        driver.used[device] += graph.memory;
        e.set(driver.execs.add(Exec { graph, live: true }));
        Ok(())
    })
}

fn update(call: &Call, e: u64, g: u64) -> Answer {
    call.make(|driver| {
        let graph = driver.graph(g)?.clone();
        driver.exec(e)?.graph = graph;
        Ok(())
    })
}

fn launch(call: &Call, e: u64, s: u64, default: Default) -> Answer {
    call.start(|driver| {
        let stream = driver.stream_or(s, default, INVALID_HANDLE)?;
        let exec = driver.execs.get(e).filter(|e| e.live).ok_or(INVALID_HANDLE)?;
        let took = exec.graph.steps.iter().map(|step| step.took).sum();
        let mut at = driver.schedule(stream, took) - took;
        for step in &driver.execs[e].graph.steps {
            let run = Run { what: step.what, bytes: step.bytes, rate: D2D, kernel: step.took, node: step.number };
            driver.ran(stream, at, at + step.took, run);
            at += step.took;
        }
        Ok(())
    })
}

fn add(call: &Call, g: u64, what: What, bytes: impl FnOnce() -> u64, length: impl FnOnce(u64) -> i64) -> Answer {
    call.make(|driver| {
        let bytes = bytes();
        driver.add_step(g, what, length(bytes), bytes)
    })
}

fn allowed(call: &Call) -> Answer {
    call.make(|_| Ok(()))
}

/// A node of any type: by the function of that type.
fn add_node(call: &Call, g: u64, node: In<i32>) -> Answer {
    allowed(call)?;
    /// Where the type's own part begins, and what comes before a copy in it.
    const OF: usize = 16;
    const BEFORE_COPY: usize = 16;
    let by = Out::to(&mut 0u64);
    match node.get() {
        1 => answered(cuGraphAddMemcpyNode(by, g, 0, 0, node.inside(OF + BEFORE_COPY), 0)),
        2 => answered(cuGraphAddMemsetNode(by, g, 0, 0, node.inside(OF), 0)),
        4 => answered(cuGraphAddChildGraphNode(by, g, 0, 0, node.inside(OF).get())),
        10 => answered(cuGraphAddMemAllocNode(by, g, 0, 0, node.inside::<AllocNode>(OF).place())),
        11 => answered(cuGraphAddMemFreeNode(by, g, 0, 0, node.inside(OF).get())),
        _ => add(call, g, What::Kernel, || 0, |_| 1000),
    }
}

driver_functions! { call;
    cuGraphCreate(g: Out<u64>, flags: u32) => call.make(|driver| {
        g.set(driver.new_graph());
        Ok(())
    });
    cuGraphClone(clone: Out<u64>, g: u64) => call.make(|driver| {
        let of = driver.graph(g)?.clone();
        clone.set(driver.graphs.add(of));
        Ok(())
    });
    cuGraphDestroy(g: u64) => allowed(&call);
    cuGraphInstantiate(e: Out<u64>, g: u64, node: usize, log: usize, n: usize) => instantiate(&call, e, g);
    cuGraphInstantiate_v2(e: Out<u64>, g: u64, node: usize, log: usize, n: usize) => instantiate(&call, e, g);
    cuGraphInstantiateWithFlags(e: Out<u64>, g: u64, flags: u64) => instantiate(&call, e, g);
    cuGraphInstantiateWithParams(e: Out<u64>, g: u64, params: usize) => instantiate(&call, e, g);
    cuGraphInstantiateWithParams_ptsz(e: Out<u64>, g: u64, params: usize) => instantiate(&call, e, g);
    cuGraphExecUpdate(e: u64, g: u64, node: usize, result: usize) => update(&call, e, g);
    cuGraphExecUpdate_v2(e: u64, g: u64, result: usize) => update(&call, e, g);
    cuGraphExecDestroy(e: u64) => call.make(|driver| {
        let (_, device) = driver.current()?;
        let exec = driver.exec(e)?;
        exec.live = false;
        driver.used[device] -= exec.graph.memory;
        Ok(())
    });
    cuGraphLaunch(e: u64, s: u64) => launch(&call, e, s, Legacy);
    cuGraphLaunch_ptsz(e: u64, s: u64) => launch(&call, e, s, Own);
    cuGraphUpload(e: u64, s: u64) => allowed(&call);
    cuGraphUpload_ptsz(e: u64, s: u64) => allowed(&call);
    cuGraphAddMemcpyNode(node: Out<u64>, g: u64, before: usize, n: usize, p: In<Volume<u64, u64>>, c: u64) => {
        add(&call, g, What::Copy, || p.get().w * p.get().h * p.get().d, |bytes| took(bytes, D2D))
    };
    cuGraphAddMemsetNode(node: Out<u64>, g: u64, before: usize, n: usize, p: In<SetNode>, c: u64) => {
        add(&call, g, What::Set, || p.get().element as u64 * p.get().w * p.get().h, |bytes| took(bytes, SET))
    };
    cuGraphAddMemAllocNode(node: Out<u64>, g: u64, before: usize, n: usize, p: Out<AllocNode>) => call.make(|driver| {
        let mut of = p.get();
        of.address = driver.add_memory(g, of.bytes)?;
        p.set(of);
        Ok(())
    });
    cuGraphAddMemFreeNode(node: Out<u64>, g: u64, before: usize, n: usize, p: u64) => call.make(|driver| driver.is_of_graph(p));
    cuGraphAddChildGraphNode(node: Out<u64>, g: u64, before: usize, n: usize, child: u64) => call.make(|driver| {
        let steps = driver.graph(child)?.steps.clone();
        steps.iter().try_for_each(|step| driver.add_step(g, step.what, step.took, step.bytes))
    });
    cuGraphAddNode(node: Out<u64>, g: u64, before: usize, n: usize, p: In<i32>) => add_node(&call, g, p);
    cuGraphAddNode_v2(node: Out<u64>, g: u64, before: usize, data: usize, n: usize, p: In<i32>) => add_node(&call, g, p);
    cuGraphAddNode_v3(node: Out<u64>, g: u64, before: usize, data: usize, n: usize, p: In<i32>) => add_node(&call, g, p);
    // A node's handle is its type here.
    cuGraphNodeGetType(node: u64, kind: Out<i32>) => {
        kind.set(node as i32);
        Ok(())
    };
    cuGraphDestroyNode(node: u64) => allowed(&call);
    cuGraphMemcpyNodeSetParams(node: u64, p: usize) => allowed(&call);
    cuGraphMemsetNodeSetParams(node: u64, p: usize) => allowed(&call);
    cuGraphNodeSetParams(node: u64, p: usize) => allowed(&call);
    cuGraphNodeSetParams_v2(node: u64, p: usize) => allowed(&call);
    cuGraphNodeSetEnabled(e: u64, node: u64, enabled: u32) => allowed(&call);
    cuGraphExecMemcpyNodeSetParams(e: u64, node: u64, p: usize, c: u64) => allowed(&call);
    cuGraphExecMemsetNodeSetParams(e: u64, node: u64, p: usize, c: u64) => allowed(&call);
    cuGraphExecKernelNodeSetParams(e: u64, node: u64, p: usize) => allowed(&call);
    cuGraphExecKernelNodeSetParams_v2(e: u64, node: u64, p: usize) => allowed(&call);
    cuGraphExecNodeSetParams(e: u64, node: u64, p: usize) => allowed(&call);
    cuGraphExecChildGraphNodeSetParams(e: u64, node: u64, g: u64) => allowed(&call);
}
