# A JavaScript engine: huge reservations, code pages, workers, guarded WebAssembly memory, a child.
node -e '
const { Worker } = require("worker_threads");
const rows = Array.from({ length: 300000 }, (_, i) => ({ i, text: "row" + (i % 100) }));
const sum = rows.reduce((s, r) => s + r.i, 0);
const memory = new WebAssembly.Memory({ initial: 2, maximum: 1000 });
memory.grow(5);
const worker = new Worker("require(\"worker_threads\").parentPort.postMessage(Buffer.alloc(5000000).length)", { eval: true });
worker.on("message", n => console.log("sum", sum, "pages", memory.buffer.byteLength / 65536, "worker", n, require("child_process").execSync("echo child").toString().trim()));'
