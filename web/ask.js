// SPDX-License-Identifier: Apache-2.0
// The page's program in Node.js: reads a line of JSON, [question, request], and prints a line of JSON, {ms, answer}.
//
//   node ask.js sluice_web.js
'use strict';
const fs = require('fs'), vm = require('vm');
globalThis.require = require;
globalThis.__filename = process.argv[2];
globalThis.__dirname = '.';
globalThis.Module = {
  onRuntimeInitialized() {
    const lines = require('readline').createInterface({input: process.stdin});
    lines.on('line', line => {
      const began = performance.now();
      const answer = Module.ccall('sluice_ask', 'string', ['string', 'string'], JSON.parse(line));
      process.stdout.write(`{"ms":${performance.now() - began},"answer":${answer}}\n`);
    });
  },
};
vm.runInThisContext(fs.readFileSync(process.argv[2], 'utf8'));
