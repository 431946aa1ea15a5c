// SPDX-License-Identifier: Apache-2.0
// The planner in a worker: questions and answers, and how to end what takes too long.
'use strict';

const $ = id => document.getElementById(id);
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value); else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

const programUrl = URL.createObjectURL(new Blob([$('worker').textContent], {type: 'text/javascript'}));
class Planner {
  constructor() { this.asked = 0; this.start(); }
  start() {
    this.waiting = new Map();
    this.worker = new Worker(programUrl);
    this.worker.onmessage = ({data}) => {
      const [one] = data.id === undefined ? this.waiting.values() : [this.waiting.get(data.id)];
      if (!one) return;
      if (data.id === undefined) return one.onProgress(data.progress, data.done);
      this.waiting.delete(data.id);
      if (data.broken) this.restart();
      one.resolve(data.answer);
    };
  }
  // The answer to a question; null: it was stopped.
  ask(question, request = '', onProgress = () => {}) {
    const id = ++this.asked;
    return new Promise(resolve => {
      this.waiting.set(id, {resolve, onProgress});
      this.worker.postMessage({id, question, request});
    });
  }
  end() { this.worker.terminate(); }
  // At once, whatever it does. One that does nothing stays, since its program is compiled and warm.
  stop() { if (this.waiting.size > 0) this.restart(); }
  restart() {
    this.end();
    const waiting = [...this.waiting.values()];
    this.start();
    for (const one of waiting) one.resolve(null);
  }
}
const planner = new Planner(), quick = new Planner();
