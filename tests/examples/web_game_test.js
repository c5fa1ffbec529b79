// SPDX-License-Identifier: MIT
// The program of the page without a page: it plays, learns, saves and loads, and refuses what is no player.
// Usage: node web_game_test.js GAME.JS (beside it, game.wasm) [FRAMES LEAST_PER_CENT]
'use strict';
const assert = require('assert');
const [frames, least] = process.argv.length > 3 ? process.argv.slice(3).map(Number) : [1280, 22];

require(require('path').resolve(process.argv[2]))().then(game => {
  const reason = () => game.UTF8ToString(game._reason());
  const holds = call => assert.ok(call, reason());
  const play = count => {
    for (let i = 0; i < count; ++i) { holds(game._frame()); holds(game._learn(1e6)); }
  };
  holds(game._start(1));
  play(320);
  const early = game._caught();
  while (game._frames() < frames) play(1);
  const late = game._caught(), updates = game._updates();
  console.log(`caught ${early.toFixed(1)} %, then ${late.toFixed(1)} % after ${updates} updates`);
  assert.ok(late >= least && late > early, `expected at least ${least} %`);

  // A saved player goes on where it was, in a new match.
  const size = game._save(), saved = game.HEAPU8.slice(game._bytes(size), game._bytes(size) + size);
  assert.ok(size > 0, reason());
  const give = bytes => game.HEAPU8.set(bytes, game._bytes(bytes.length));
  holds(game._start(2));
  assert.strictEqual(game._updates(), 0);
  give(saved);
  holds(game._load(3));
  assert.strictEqual(game._updates(), updates);
  play(320);
  assert.ok(game._caught() > early, `the loaded player catches ${game._caught()} %`);

  // What is damaged, cut or something else is refused, and the match goes on.
  const left = game._updates();
  for (const [bytes, words] of [[saved.slice(0, 1000), 'truncated'], [Buffer.from('no player'), 'it looks like'],
                                [saved.map((byte, i) => (i === 30000 ? byte ^ 1 : byte)), 'checksum']]) {
    give(bytes);
    assert.ok(!game._load(1) && reason().includes(words), `${words}: ${reason()}`);
  }
  play(10);
  assert.ok(game._updates() >= left);

  // Slices of 2 ms, in milliseconds of the processor, which do not count interruptions. Said, and not promised.
  const spent = () => (({ user, system }) => (user + system) / 1000)(process.cpuUsage());
  const slices = [];
  while (slices.length < 1000) {
    holds(game._frame());
    const begun = spent();
    holds(game._learn(2));
    slices.push(spent() - begun);
  }
  slices.sort((a, b) => a - b);
  console.log(`slices of 2 ms take at most ${slices[990].toFixed(1)} ms of the processor in 99 of 100 cases, ` +
              `${slices[999].toFixed(1)} ms in all`);
}).catch(why => { console.error(why); process.exit(1); });
