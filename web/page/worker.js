// SPDX-License-Identifier: Apache-2.0
// Asks the program what the page asks for, one question at a time.
const ready = new Promise(resolve => { Module.onRuntimeInitialized = resolve; });
onmessage = async ({data: {id, question, request}}) => {
  await ready;
  try {
    postMessage({id, answer: JSON.parse(Module.ccall('sluice_ask', 'string', ['string', 'string'], [question, request]))});
  } catch (failure) {
    postMessage({id, answer: {error: `The planner stopped: ${failure}. Plans of very many tasks want more memory than a page has.`}, broken: true});
  }
};
