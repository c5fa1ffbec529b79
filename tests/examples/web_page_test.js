// SPDX-License-Identifier: MIT
// The page in Chromium, driven through its pipe: it learns, pauses, saves, loads, and says what is wrong.
// Usage: node web_page_test.js CHROMIUM PAGE.HTML PICTURE.PNG [SECONDS LEAST_PER_CENT]
'use strict';
const assert = require('assert'), fs = require('fs'), os = require('os'), path = require('path');
const { spawn } = require('child_process');
const [chromium, page, picture] = process.argv.slice(2);
const [seconds, least] = process.argv.length > 5 ? process.argv.slice(5).map(Number) : [0, 60];

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'adacc-page-'));
const browser = spawn(chromium,
  ['--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--remote-debugging-pipe',
   '--window-size=760,900', `--user-data-dir=${folder}`, 'about:blank'],
  { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
const waiting = new Map();
let sent = 0, left = '', session, traced;
const events = [];
browser.stdio[4].on('data', data => {
  const texts = (left + data).split('\0');
  left = texts.pop();
  for (const text of texts) {
    const said = JSON.parse(text), call = waiting.get(said.id);
    if (said.method === 'Tracing.dataCollected') events.push(...said.params.value);
    if (said.method === 'Tracing.tracingComplete') traced();
    if (!call) continue;
    waiting.delete(said.id);
    said.error ? call[1](new Error(said.error.message)) : call[0](said.result);
  }
});
const send = (method, params = {}) => new Promise((done, failed) => {
  waiting.set(++sent, [done, failed]);
  browser.stdio[3].write(JSON.stringify({ id: sent, method, params, sessionId: session }) + '\0');
});
const ask = async expression => {
  const said = await send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
  assert.ok(!said.exceptionDetails, JSON.stringify(said.exceptionDetails));
  return said.result.value;
};
const text = id => ask(`document.getElementById('${id}').textContent`);
const click = id => ask(`document.getElementById('${id}').click()`);
const wait = ms => new Promise(done => setTimeout(done, ms));
const until = async (what, most_seconds) => {
  for (let i = 0; i < 5 * most_seconds; ++i, await wait(200)) if (await ask(what)) return;
  assert.fail(`not after ${most_seconds} s: ${what}; the page says: ${await text('told')} ${await text('numbers')}`);
};

/// Slices of 2 ms for some seconds, in milliseconds of the clock and of the page's thread. Said, and not promised: the
/// clock counts what other programs and the browser's other threads take.
async function slices(for_seconds) {
  await ask(`{ const learn = game._learn; game._learn = ms => {
    performance.mark('begin');
    const held = learn(ms);
    performance.mark('end');
    performance.clearMarks();
    return held;
  }; }`);
  await send('Tracing.start', { transferMode: 'ReportEvents',
                                traceConfig: { recordMode: 'recordAsMuchAsPossible', includedCategories: ['blink.user_timing'] } });
  await wait(1000 * for_seconds);
  const whole = new Promise(done => { traced = done; });
  await send('Tracing.end');
  await whole;
  const marks = events.filter(one => one.name === 'begin' || one.name === 'end').sort((a, b) => a.ts - b.ts);
  const took = [];
  for (let i = 1; i < marks.length; ++i)
    if (marks[i].name === 'end' && marks[i - 1].name === 'begin')
      took.push([(marks[i].ts - marks[i - 1].ts) / 1000, (marks[i].tts - marks[i - 1].tts) / 1000]);
  assert.ok(took.length > 0 && took.every(one => one[0] >= 0 && one[1] >= 0), 'no slices were traced');
  const share = (of, part) => took.map(one => one[of]).sort((a, b) => a - b)[Math.ceil(part * took.length) - 1].toFixed(1);
  console.log(`${took.length} slices of 2 ms: at most ${share(1, 0.99)} ms of the processor in 99 of 100 cases, ` +
              `${share(1, 1)} ms in all; by the clock ${share(0, 0.99)} and ${share(0, 1)} ms`);
}

async function run() {
  const { targetId } = await send('Target.createTarget', { url: 'file://' + path.resolve(page) });
  session = (await send('Target.attachToTarget', { targetId, flatten: true })).sessionId;
  await until("typeof game !== 'undefined' && game !== undefined && game._frames() > 0", 60);
  assert.strictEqual(await text('told'), 'a new player');

  // As a person sees it, in real time, or as fast as the browser can.
  if (seconds > 0) await wait(1000 * seconds);
  else await click('hurry');
  await until(`game._caught() >= ${least}`, 300);
  console.log(await text('numbers'));
  await wait(500);
  const shot = await send('Page.captureScreenshot', { format: 'png' });
  fs.writeFileSync(picture, Buffer.from(shot.data, 'base64'));

  await slices(10);
  await click('pause');
  const frames = await ask('game._frames()');
  await wait(300);
  assert.strictEqual(await ask('game._frames()'), frames, 'it does not pause');
  await click('save');
  assert.match(await text('told'), /^saved after \d+ updates$/);
  const updates = await ask('game._updates()');
  await click('fresh');
  assert.strictEqual(await ask('game._updates()'), 0);
  await click('load');
  assert.strictEqual(await text('told'), 'the saved player goes on');
  assert.strictEqual(await ask('game._updates()'), updates);
  await click('pause');
  await until('game._updates() > ' + updates, 60);

  // Another page of the same browser has the player; a damaged one is refused, and so is none.
  await send('Page.reload');
  await wait(500);
  await until("typeof game !== 'undefined' && game !== undefined && game._frames() > 0", 60);
  await click('load');
  assert.strictEqual(await text('told'), 'the saved player goes on');
  await ask("localStorage.setItem(key, btoa('no player'))");
  await click('load');
  assert.match(await text('told'), /it looks like/);
  await ask('localStorage.clear()');
  await click('load');
  assert.strictEqual(await text('told'), 'no player was saved in this browser');
  await ask("Object.defineProperty(window, 'localStorage', { get() { throw new Error('none') } }), 0");
  await click('save');
  assert.match(await text('told'), /keeps nothing for this page/);

  // A browser without vector instructions is told so.
  await send('Page.enable');
  await send('Page.addScriptToEvaluateOnNewDocument', { source: 'WebAssembly.validate = () => false' });
  await send('Page.reload');
  await wait(500);
  await until("document.readyState === 'complete'", 60);
  assert.match(await text('told'), /no vector instructions/);
}

run().then(() => 0, why => { console.error(why); return 1; }).then(status => {
  browser.on('exit', () => { fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 }); process.exit(status); });
  browser.kill();
});
