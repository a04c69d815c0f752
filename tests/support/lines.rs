//! A line of every type, for tests of whatever reads traces. The numbers are made up, but hang together.

/// Full mode with stacks, and an image after it in fast mode.
pub const CALLS: &str = r#"{"type":"header","v":1,"run":"00","pid":7,"ppid":1,"start_ticks":77,"pid_ns":1,"exec":0,"mode":"full","cols":"v93","tick_ns":100,"mono_ns":1000,"wall_ns":1764289999000000000,"host":{"hex":"61"},"exe":"/bin/x","argv":["x",{"hex":"ff"}],"cwd":"/","rank":3,"job":"981","big":65536,"sample":524288,"page":4096,"allocator":"glibc","slack":24,"fns":["malloc","calloc","realloc"],"stacks":"mixed","python":null,"inherited":{"live":500,"blocks":2,"from":1}}
{"type":"kinds","from":1,"kinds":[[0,100,4,0],[2,120,0,1],[0,-1,0,0],[0,300,4,4]]}
{"type":"modules","t":1400,"load":[[1,4096,"/nowhere/a","0aff",[[4096,8192],[12288,16384]]],[2,65536,"/nowhere/b","",[[65536,69632]]]],"unload":[1]}
{"type":"python","t":1450,"version":"3.11.2","known":true}
{"type":"code","codes":[[1,"a.py","f",7,779,"8000"],[2,{"hex":"ff"},"g",9,775,"0001"]]}
{"type":"nodes","lane":0,"from":1,"n":3,"nodes":[1,10000,1,2000,2,130001]}
{"type":"nodes","lane":1,"from":1,"n":2,"nodes":[1,0,1,10000]}
{"type":"pynodes","lane":0,"from":1,"n":2,"nodes":[1,1,5,1,2,6]}
{"type":"thread","t":1500,"lane":0,"tid":7,"seq":0,"what":"start"}
{"type":"ev","g":0,"lane":0,"n":4,"seq":0,"t0":2000,"t1":3000,"t":[2,3],"k":[3,9,6,7,4],"x":[],"z":[777,8],"s":[0,2,2,3],"p":[1,2],"allocs":3,"frees":2,"bytes":997,"live":5,"peak":9}
{"type":"ev","g":0,"lane":1,"n":4,"seq":0,"t0":2100,"t1":3100,"t":[1,1],"k":[1,3,2,1],"x":[1,2,0,55,64],"z":[],"s":[1,2]}
{"type":"thread","t":3500,"lane":0,"tid":8,"seq":4,"what":"start","name":"w"}
{"type":"ev","g":1,"lane":0,"n":3,"seq":3,"t0":3200,"t1":4100,"t":[1,1],"k":[12,4,5],"x":[],"z":[]}
{"type":"calls","t":4000,"fns":[[0,1000,64000],[11,998,0]],"live":2048,"blocks":2,"failed":3,"lost":1,"lanes":[[0,1000,64000,998,2048,4096],[1,1,2,3,4,5]]}
{"type":"calls","t":5000,"fns":[[0,1001,64000],[11,998,0]],"live":2048,"blocks":2,"failed":3,"lost":1,"lanes":[[0,1001,64000,998,2050,4096]]}
{"type":"maps","ev":[["mmap",1,2,0,65536,8192,3,34,0],["mremap",2,3,4,0,65536,8192,131072,16384,1],["mprotect",4,5,0,131072,4096,0],["madvise",5,6,0,131072,4096,4],["munmap",6,7,0,131072,4096],["undo",6],["brk",7,8,0,4096,8192],["shmat",8,9,0,1048576,4096],["shmdt",9,9,0,1048576,0]]}
{"type":"rss","t":4000,"rss":1000000,"hwm":1000001,"anon":500000,"file":500000,"shmem":0,"swap":0,"size":1,"stk":132000,"threads":3}
{"type":"snap","t":4001,"why":"peak","rss":1000002,"hwm":1000002,"anon":500000,"file":500000,"self":{"maxrss":5,"utime_ns":5,"stime_ns":6},"children":{"maxrss":7},"live":2048,"blocks":3,"own":{"spool":4096}}
{"type":"child","t":4500,"how":"fork","pid":4243}
{"type":"lost","t":4600,"lane":1,"n":17,"why":"ring full"}
{"type":"note","t":4600,"what":"a note"}
{"type":"process","pid":7,"start_ticks":77}
{"type":"thread","t":4700,"lane":0,"tid":8,"what":"end","name":"worker"}
{"type":"end","t":5000,"how":"exit","code":0,"counted":10,"recorded":9,"lost":1,"failed":0,"own":{}}
{"type":"outside","pid":7,"t":5001,"wall_ns":1,"hwm":1000003,"status":{"kind":"exited","code":0},"rusage":{"utime_ns":1,"stime_ns":2}}
{"type":"header","v":1,"pid":7,"start_ticks":77,"exec":1,"mode":"fast","tick_ns":100,"mono_ns":6000,"wall_ns":1764289999000005000,"slack":null}
{"type":"kinds","from":1,"kinds":[[0,300,4,4]]}
{"type":"ev","g":0,"lane":0,"n":2,"seq":0,"t0":7000,"t1":8000,"k":"$%"}
{"type":"calls","t":9000,"fns":[[0,1000,64000]],"live":2048,"blocks":2,"lanes":[[0,1000,64000,998,2048,4096],[1,1,2,3,4,5]]}
"#;

/// Fast mode with ages: phases, Python's own blocks, a GPU, a write that failed, and the view from outside.
pub const LAYERS: &str = r#"{"type":"header","v":1,"run":"01","pid":9,"ppid":1,"start_ticks":99,"pid_ns":1,"exec":0,"mode":"fast","ages":true,"cols":"v93","tick_ns":100,"mono_ns":1000,"wall_ns":1764289999000000000,"host":"h","exe":"/bin/y","argv":["y"],"cwd":"/","rank":0,"job":"5","big":65536,"sample":524288,"page":4096,"allocator":"glibc","slack":31,"heap_seen":true,"fns":["malloc","free"],"python_fns":["PyMem_RawMalloc","PyMem_RawFree"],"stacks":"native","python":"3.12.1","python_known":true,"inherited":{"live":5,"blocks":1,"from":1,"python_live":7,"python_blocks":1}}
{"type":"kinds","from":1,"kinds":[[0,70000,8,0],[0,300,4,12],[0,40,8,0]]}
{"type":"modules","t":1400,"load":[[1,4096,"/nowhere/a","0aff",[[4096,8192],[12288,16384]]]],"unload":[]}
{"type":"nodes","lane":0,"from":1,"n":2,"nodes":[1,10000,1,2000]}
{"type":"thread","t":1500,"lane":0,"tid":9,"seq":0,"what":"start"}
{"type":"pythread","t":1500,"lane":1,"tid":9,"seq":0,"what":"start"}
{"type":"phase","ev":[["name",1,0,"st"],["name",1,1,"ep"],["domain",2,0,"lib"],["name",4,0,"main"],["mark",1800,0,0,0,0,"process",4,0,0],["begin",2000,0,0,0,0,"nvtx",1,0,5,100,1,0,1,0,5,6],["end",3000,0,0,3,2,"nvtx",2,0,70005,200,2,0,2,0,7,8],["begin",3000,0,0,3,2,"nvtx",1,0,70005],["return",4000,0,0,6,4,"nvtx",0,0,140005],["begin",4000,0,0,6,4,"nvtx",1,9,140005],["end",5000,0,0,9,6,"nvtx",0,9,210005],["begin",5000,0,0,9,6,"nvtx",1,0,210005],["end",6000,0,0,12,8,"nvtx",0,0,280005],["begin",6000,0,0,12,8,"nvtx",1,0,280005],["end",7000,0,0,15,10,"nvtx",0,0,350005],["begin",7000,0,0,15,10,"nvtx",1,0,350005],["end",8000,0,0,18,12,"nvtx",0,0,420005]]}
{"type":"ev","g":0,"lane":0,"n":18,"seq":0,"t0":2000,"t1":8000,"t":[3,10,3,10,3,10,3,10,3,10],"k":[3,6,4,3,6,4,3,6,4,3,6,4,3,6,4,3,6,4],"x":[1,1,0,1,1,0,1,1,0,1,1,0,1,1,0,1,1,0],"z":[],"s":[0,2],"allocs":12,"frees":6,"bytes":421800}
{"type":"pyev","g":0,"lane":1,"n":2,"seq":0,"t0":2000,"t1":3000,"t":[],"k":[9,4],"x":[1,0],"z":[]}
{"type":"snap","t":8000,"why":"phase","rss":1000002,"hwm":1000002,"anon":500000,"file":500000,"shmem":4096,"hugetlb":2097152,"live":420005,"blocks":7,"io":{"read":5,"written":6,"storage_read":0,"storage_written":0}}
{"type":"calls","t":8100,"fns":[[0,20,430000],[1,10,0]],"live":420005,"blocks":10,"failed":1,"lost":0,"broken":1,"lanes":[[0,20,430000,10,420005,420400]],"hi_blocks":[11]}
{"type":"pycalls","t":8100,"fns":[[0,10,400],[1,9,0]],"live":48,"blocks":1,"failed":0,"lost":0,"lanes":[[1,10,400,9,48,96]],"hi_blocks":[2]}
{"type":"maps","ev":[["mmap",1,2100,0,65536,8192,3,34,0],["munmap",2,2200,0,65536,4096],["mmap",3,2300,0,1048576,4096,3,34,8]],"s":[1,0,0,0,2,0]}
{"type":"gpu","ev":[["name",1,0,"A GPU"],["name",2,1,"cuNew"],["name",3,0,"events"],["name",4,0,"32.0 GT/s PCIe x16"],["name",5,1,"cupy"],["name",6,256,"_Z1kv"],["name",7,0,"why"],["name",8,0,"/lib/cupti"],["context","",1,2000,0,0,0,1,0,77],["state","",2,2000,0,0,0,1,0,900000,1000000,0],["state","",3,2000,0,0,0,1,257,5,6,7],["state","",4,2000,0,0,0,1,2,1000,2000,0],["state","",5,2000,0,0,0,1,5,1,12,0],["state","",6,2000,0,0,0,1,6,10,20,0],["state","",7,2000,0,0,0,1,4,1,2,3],["state","",8,2000,0,0,0,1,7,10,20,30],["state","",9,2000,0,0,0,1,3,1,0,0]]}
{"type":"gpu","ev":[["alloc","cuMemAlloc",10,2100,0,0,0,1,0,4096,65536,0],["alloc","cuMemAllocHost",11,2100,0,0,0,1,4,8192,4096,0],["alloc","cuMemCreate",12,2100,0,0,0,1,3,99,2097152,0],["map","cuMemMap",13,2100,0,0,0,1,0,99,1048576,2097152],["free","cuMemFree",14,2900,0,0,0,1,0,4096,0],["alloc","cuMemAlloc",15,2900,0,2,0,1,0,0,65536,0],["free","cuMemFree",16,2900,0,0,0,1,0,5000,0]],"s":[1,0,2,0,0,0,0,0,0,0,0,0,0,0]}
{"type":"gpu","ev":[["stream","cuStreamCreate",20,2100,0,0,0,1,0,64,0,0],["copy","cuMemcpyHtoDAsync",21,2200,0,0,0,1,1296,100000,5,64,0,1],["time","",21,2300,0,0,0,1,0,400],["copy","cuMemcpyDtoH",22,2400,0,0,0,1,0,5000,500,1,0,1],["copy","cuMemcpyHtoDAsync",23,2500,0,0,0,1,4864,1000,5,64,0,1],["work","",24,2600,0,0,0,1,1,300,23,7,1000,0],["work","",25,3000,0,0,0,1,4,200,64,7,1,0],["work","",26,3300,0,0,0,1,12,100,64,7,1,5],["stream","cuStreamSynchronize",27,2900,0,0,0,1,2,64,0,700],["spell","",28,2600,0,0,0,1,0,64,500,3,100],["busy","",29,4000,0,0,0,1,0,64,50,40,9,500]]}
{"type":"gpu","ev":[["graph","cuStreamBeginCapture",30,4000,0,0,0,1,0,64,0,0,0],["copy","cuMemcpyHtoDAsync",31,4100,0,0,0,1,784,1000,5,64,8,1],["graph","cuStreamEndCapture",32,4200,0,0,0,1,1,500,8,64,0],["graph","cuGraphInstantiate",33,4300,0,0,0,1,5,600,500,0,0],["graph","cuGraphLaunch",34,4400,0,0,0,1,1033,600,64,50,0],["time","",34,4500,0,0,0,1,0,250],["graph","cuGraphLaunch",35,4800,0,0,0,1,9,600,64,50,0],["graph","cuGraphExecUpdate",36,5000,0,0,0,1,6,600,500,0,0],["graph","cuGraphAddMemAllocNode",37,5000,0,0,0,1,14,500,4096,1048576,0],["graph","cuGraphClone",38,5000,0,0,0,1,4,700,500,0,0],["graph","cuGraphExecDestroy",39,5000,0,0,0,1,8,600,0,0,0],["context","cuCtxDestroy",40,8000,0,0,0,1,1,77]]}
{"type":"rss","t":8200,"rss":1100000,"hwm":1100001,"anon":500000,"file":500000,"shmem":0,"hugetlb":0,"swap":0,"size":1,"stk":132000,"threads":3,"cpu":5000}
{"type":"child","t":8300,"how":"spawn","pid":4243,"program":"cc1","preload":false}
{"type":"child","t":8400,"how":"ended","pid":4243,"signal":9}
{"type":"lost","t":8500,"lane":0,"n":3,"why":"ring full"}
{"type":"mode","t":8600,"mode":"count","why":"the trace could not be written any more: no space","errno":28,"whole":8500}
{"type":"note","t":8700,"what":"spool private: an exec failed"}
{"type":"end","t":9000,"how":"exit","code":0,"counted":30,"recorded":18,"lost":0,"failed":1,"python":{"wrapped":true,"counted":19,"recorded":2,"lost":0},"own":{"spool":4096,"private":5,"table":6,"code":7,"table_blocks":1,"lanes":2}}
{"type":"outside","pid":9,"t":9001,"wall_ns":1,"hwm":1200003,"status":{"kind":"signaled","signal":9},"rusage":{"utime_ns":1,"stime_ns":2,"maxrss":1300000},"waited_cpu_ns":5,"cgroup":{"v":1,"peak":7,"peak_before":5,"limit":2000000,"oom_kills":1},"slurm":{"from":"SLURM_MEM_PER_NODE","limit":3000000},"children_hwm":5000,"children":[[4243,8813,9,"cc1",5000,8300,8400]]}
"#;

/// The side file of [`LAYERS`].
pub const MARKS: &str = r#"{"type":"edge","t":2500,"pid":9,"start_ticks":99,"what":"next","name":"one","source":"output","seen":{"live":70000,"sure":70000,"most":70500,"allocs":3,"bytes":70340},"resident":{"rss":1000000,"hwm":1000002}}
{"type":"edge","t":5500,"pid":9,"start_ticks":99,"what":"next","name":"two","source":"output","late":1500,"seen":{"live":280000,"sure":280000,"most":280500,"allocs":9,"bytes":281000}}
{"type":"edge","t":6500,"pid":9,"start_ticks":99,"what":"begin","name":"in","source":"mark"}
{"type":"edge","t":6600,"pid":9,"start_ticks":0,"what":"end","source":"mark"}
{"type":"edge","t":6700,"pid":9,"what":"mark","name":"now","source":"mark"}
{"type":"compile","t":3000,"pid":9,"start_ticks":99,"by":"jax","function":"f","signature":["float32[3]"],"ns":500}
{"type":"compile","t":4000,"pid":9,"start_ticks":99,"by":"jax","function":"f","signature":["float32[4]"],"ns":600,"why":"shape"}
{"type":"artifact","t":4500,"pid":9,"start_ticks":99,"path":"dump/a.mlir","bytes":10342,"lines":211,"deleted":false}
{"type":"unmet","t":4550,"pid":9,"start_ticks":99,"rule":"^Phase (\\w+)"}
{"type":"lost","t":4600,"pid":9,"start_ticks":99,"n":12,"what":"folders of --artifacts","why":"too many"}
"#;
