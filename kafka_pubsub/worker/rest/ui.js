"use strict";
// The operator's page. All that the worker says is inserted as text, never as HTML. A part whose question failed says so,
// while the others go on. What was asked with a token isn't shown once the token is forgotten.

const KEY = "kafka-pubsub authorization";
const SERVICES = { delays: "delayed messages", causal: "causal topics" };
const $ = (id) => document.getElementById(id);
let mayWrite = false;
// How often a token was forgotten.
let locks = 0;

class Locked extends Error {}

// -- asking the worker

async function ask(path, method = "GET") {
  const headers = { accept: "application/json" };
  const key = sessionStorage.getItem(KEY);
  if (key) headers.authorization = key;
  const before = locks;
  const answer = await fetch(path, { method, headers, cache: "no-store" });
  const text = await answer.text();
  if (locks !== before) throw new Locked("The token was forgotten.");
  if (answer.status === 401) {
    lock(key ? "The worker refuses this token." : "");
    throw new Locked("The worker asks for a token.");
  }
  let body = null;
  try {
    body = text ? JSON.parse(text) : null;
  } catch {
    throw new Error(`The worker answers ${answer.status} without JSON.`);
  }
  if (!answer.ok) throw new Error(body?.message ?? `The worker answers ${answer.status}.`);
  return body;
}

function query(values) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== "" && value != null) found.append(name, value);
  const text = found.toString();
  return text && `?${text}`;
}

const part = (text) => encodeURIComponent(text);
const lettersOf = (of) => {
  const [kind, name] = [of.slice(0, of.indexOf(":")), of.slice(of.indexOf(":") + 1)];
  return kind === "service" ? `ui/api/${name}/deadletters` : `ui/api/subscriptions/${part(name)}/deadletters`;
};

// -- making elements

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((each) => each != null && each !== ""));
  return made;
}

function button(text, about, act, className = "") {
  const made = element("button", { type: "button", textContent: text, className });
  if (about) made.setAttribute("aria-label", `${text}: ${about}`);
  made.addEventListener("click", () => busy(made, act));
  return made;
}

async function saying(act) {
  try {
    await act();
  } catch (error) {
    if (!(error instanceof Locked)) say(error.message, true);
  }
}

// Acts for a button, once at a time; a button that were disabled meanwhile would lose the focus. If the button is gone
// then, the focus goes to the head of its part.
async function busy(control, act) {
  if (control.ariaBusy === "true") return;
  const section = control.closest("section");
  control.ariaBusy = "true";
  await saying(act);
  control.ariaBusy = null;
  if (document.activeElement === document.body) section?.querySelector("h2").focus();
}

function say(text, bad = false) {
  $("said").textContent = text;
  $("said").className = bad ? "bad" : "";
}

const number = (value) => (value == null ? "" : value.toLocaleString("en"));
const atLeast = (value, unread) => (value == null ? "unknown" : number(value) + (unread ? "+" : ""));

function time(text) {
  if (!text) return "";
  const seconds = (Date.now() - new Date(text)) / 1000;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= 2 * size) ?? ["s", 1];
  const span = `${Math.round(Math.abs(seconds) / size)} ${unit}`;
  return element("time", { dateTime: text, title: text, textContent: seconds >= 0 ? `${span} ago` : `in ${span}` });
}

const keyText = (row) => (row.key == null ? "" : row.key_encoding ? `${row.key} (base64)` : row.key);

// Columns are [name, cell of a row, whether it is a number]; the roles stay when CSS makes cards of the rows.
function fill(place, label, columns, rows, empty) {
  if (!rows.length) {
    $(place).replaceChildren(element("p", { className: "empty", textContent: empty }));
    return;
  }
  const cell = (row, [name, show, isNumber]) => {
    const shown = show(row) ?? "";
    const className = [isNumber ? "number" : "", shown === "" ? "blank" : ""].join(" ").trim();
    return element("td", { role: "cell", className, "data-column": name }, element("div", {}, shown));
  };
  const head = columns.map(([name, , isNumber]) =>
    element("th", { role: "columnheader", scope: "col", className: isNumber ? "number" : "" }, name),
  );
  const body = rows.map((row) => element("tr", { role: "row" }, ...columns.map((each) => cell(row, each))));
  $(place).replaceChildren(
    element("table", { role: "table", "aria-label": label },
      element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...head)),
      element("tbody", { role: "rowgroup" }, ...body)),
  );
}

const actions = (...buttons) => {
  const found = buttons.filter(Boolean);
  return found.length ? element("div", { className: "buttons" }, ...found) : "";
};

// -- dialogs

function confirmed(title, text, yes) {
  $("ask-title").textContent = title;
  $("ask-text").textContent = text;
  $("ask-yes").textContent = yes;
  const dialog = $("ask");
  return new Promise((resolve) => {
    const answer = (value) => () => {
      resolve(value);
      dialog.close();
    };
    $("ask-yes").onclick = answer(true);
    $("ask-no").onclick = answer(false);
    dialog.onclose = () => resolve(false);
    dialog.showModal();
  });
}

function view(title, fields, data) {
  $("view-title").textContent = title;
  $("view-fields").replaceChildren(
    ...fields.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value || "-")]),
  );
  $("view-data").textContent = data;
  $("view").showModal();
}

// -- changes

function told(result, verb) {
  const left = Object.entries(result.skipped).map(([why, count]) => ` ${number(count)} left where they are: ${why}.`);
  const waits = result.waits ? " No process receives now: it is done when one does." : "";
  say(`${verb} ${number(result.count)}.${left.join("")}${waits}`);
}

// Sends a change; with a `question` it counts first, and asks.
async function change(path, values, verb, question) {
  if (question) {
    const { count } = await ask(path + query({ ...values, dry_run: true }), "POST");
    if (!count) return say("There is nothing to do.");
    if (!(await confirmed(`${question.title}?`, question.text(number(count)), question.yes))) return undefined;
  }
  say("At work …");
  told(await ask(path + query(values), "POST"), verb);
  return load();
}

async function steer(name, order, said) {
  const method = order === "restart" ? "POST" : "PUT";
  await ask(`connectors/${part(name)}/${order}`, method);
  say(`${name}: ${said}.`);
  await load();
}

// -- the parts of the page

const parts = {
  async units() {
    const rows = await ask("ui/api/units");
    const trace = (row) =>
      row.trace && element("details", {}, element("summary", {}, "Trace"), element("pre", { tabIndex: 0 }, row.trace));
    const good = (row) => (row.state === "RUNNING" ? "good" : "bad");
    fill("units", "Units", [
      ["Unit", (row) => row.name],
      ["Kind", (row) => row.kind],
      ["State", (row) => element("span", { className: `state ${good(row)}`, textContent: row.state })],
      ["Why", (row) => (row.stuck.length ? element("div", {}, row.stuck[0].text, trace(row)) : "")],
      ["Members", (row) => number(row.members.length), true],
      ["Do", (row) => mayWrite && actions(...freeing(row))],
    ], rows, "This worker has no units.");
    return rows.flatMap((row) => needs(row, `Unit ${row.name}`, () => mayWrite && actions(...freeing(row))));
  },

  async subscriptions() {
    const rows = await ask("ui/api/subscriptions");
    fill("subscriptions", "Subscriptions", [
      ["Subscription", (row) => row.name],
      ["Topic", (row) => row.topic],
      ["Unfinished", (row) => number(row.backlog), true],
      ["Oldest", (row) => time(row.oldest)],
      ["Lag", (row) => number(row.lag), true],
      ["Waiting for retry", (row) => number(row.waiting_retry), true],
      ["Parked", (row) => row.problem ? "" : atLeast(row.parked, row.unread_retry), true],
      ["Blocked keys", (row) => row.problem ? "" : atLeast(row.blocked_keys, row.unread_retry), true],
      ["Dead letters", (row) => row.problem ? "" : atLeast(row.dead_letters, row.unread_dead_letters), true],
      ["Members", (row) => number(row.members?.length), true],
      ["Show", (row) => row.problem ?? actions(seeKeys(row), seeLetters(row))],
    ], rows, "There are no subscriptions.");
    choose("keys-of", rows.map((row) => [row.name, row.name]), rows.find((row) => row.parked || row.blocked_keys)?.name);
    choose("letters-of", [
      ...rows.map((row) => [`subscription:${row.name}`, row.name]),
      ...Object.entries(SERVICES).map(([name, text]) => [`service:${name}`, text]),
    ], rows.filter((row) => row.dead_letters).map((row) => `subscription:${row.name}`)[0]);
    const see = { keys: seeKeys, letters: seeLetters };
    return rows.flatMap((row) => needs(row, `Subscription ${row.name}`, (need) => see[need.see]?.(row)));
  },

  async delays() {
    const { routers, rows, more, messages } = await ask("ui/api/delays");
    $("routers").textContent = `Delay routers: ${routers ?? "unknown"}.${more ? " More wait than were read." : ""}`;
    fill("delays", "Delayed messages by topic", [
      ["Topic", (row) => row.topic],
      ["Waiting", (row) => atLeast(row.waiting, more), true],
      ["Overdue", (row) => atLeast(row.overdue, more), true],
      ["First due", (row) => time(row.first_due)],
      ["Last due", (row) => time(row.last_due)],
    ], rows, "Nothing waits.");
    fill("delayed", "The first delayed messages that are due", [
      ["Due", (row) => time(row.due)],
      ["Message", (row) => row.message_id],
      ["Topic", (row) => row.topic],
      ["Key", (row) => keyText(row)],
      ["Bytes", (row) => number(row.size), true],
    ], messages, "Nothing waits.");
    return rows.flatMap((row) => needs(row, `Delayed messages to ${row.topic}`, seePart));
  },

  async causal() {
    const { sequencers, rows } = await ask("ui/api/causal");
    $("sequencers").textContent = `Sequencers: ${sequencers ?? "unknown"}.`;
    fill("causal", "Partitions of causal topics", [
      ["Topic", (row) => row.topic + (row.deleted ? " (deleted)" : "")],
      ["Partition", (row) => number(row.partition), true],
      ["Waiting", (row) => number(row.pending), true],
      ["Oldest", (row) => row.oldest],
      ["Since", (row) => time(row.since)],
      ["Held by", (row) => row.held_by.join(", ")],
      ["Uncommitted", (row) => number(row.uncommitted), true],
      ["Why", (row) => row.stuck[0]?.text],
    ], rows, "There are no causal topics.");
    return rows.flatMap((row) => needs(row, `Causal topic ${row.topic}, partition ${row.partition}`, seePart));
  },
};

function freeing(row) {
  if (row.state === "PAUSED" || row.state === "STOPPED") {
    return [button("Resume", row.name, () => steer(row.name, "resume", "every worker runs it again"))];
  }
  return [button("Restart", row.name, () => steer(row.name, "restart", "every worker starts it again"))];
}

function needs(row, where, act) {
  return row.stuck.map((need) => ({ where, text: need.text, act: () => act(need) }));
}

const seeKeys = (row) => button("Keys", row.name, () => see("keys", "keys-of", row.name));
const seeLetters = (row) => button("Dead letters", row.name, () => see("letters", "letters-of", `subscription:${row.name}`));
const seePart = (need) => need.see && button("Show", need.see, () => $(`${need.see}-title`).focus());

async function see(name, select, value) {
  $(select).value = value;
  await (name === "keys" ? loadKeys() : loadLetters());
  $(`${name}-title`).scrollIntoView();
  $(`${name}-title`).focus();
}

// Fills a list of choices, and keeps the one that was chosen.
function choose(id, choices, first) {
  const before = $(id).value;
  $(id).replaceChildren(...choices.map(([value, text]) => element("option", { value, textContent: text })));
  const wanted = choices.some(([value]) => value === before) ? before : first;
  if (wanted) $(id).value = wanted;
}

let keysAsked = 0;
async function loadKeys() {
  const mine = ++keysAsked;
  const name = $("keys-of").value;
  if (!name) return fill("keys", "", [], [], "There are no subscriptions.");
  const { rows, count } = await ask(`ui/api/subscriptions/${part(name)}/keys`);
  if (mine !== keysAsked) return undefined;
  const path = `ui/api/subscriptions/${part(name)}/release`;
  const release = (row) => button("Release", row.message_id, () => change(path, { id: row.message_id }, "Released"));
  const drop = (row) =>
    button("Drop", row.message_id, () => change(path, { id: row.message_id, drop: true }, "Sent to the dead letters:", {
      title: "Send it to the dead letters",
      text: () => `Message ${row.message_id} isn't tried again. It becomes a dead letter, and its key goes on.`,
      yes: "Drop",
    }), "danger");
  const parked = (row) => row.state === "parked";
  fill("keys", `Keys of ${name}`, [
    ["Key", (row) => keyText(row)],
    ["State", (row) => element("span", { className: parked(row) ? "state bad" : "state", textContent: row.state })],
    ["Why", (row) => row.why],
    ["Since", (row) => time(row.since)],
    ["Next", (row) => time(row.next_due)],
    ["Attempt", (row) => number(row.attempt), true],
    ["Behind it", (row) => number(row.behind), true],
    ["Message", (row) => row.message_id],
    ["Do", (row) => mayWrite && row.message_id && row.state !== "leased" && actions(release(row), parked(row) && drop(row))],
  ], rows, `No key of ${name} is held up.`);
  if (count > rows.length) $("keys").append(element("p", {}, `${number(count - rows.length)} more aren't shown.`));
  $("release-all").hidden = !rows.some((row) => row.state === "parked" || row.state === "waiting");
  return undefined;
}

function filter() {
  if ($("letters-of").value.startsWith("service:")) return { topic: $("by-topic").value };
  const moment = (id) => $(id).value && new Date($(id).value).toISOString();
  return {
    key: $("by-key").value, error: $("by-error").value, since: moment("by-since"), until: moment("by-until"),
  };
}

// The filter of the list that is shown: buttons for all of it act on what was listed, not on what was typed since.
let listed = null;
let lettersAsked = 0;
async function loadLetters() {
  const mine = ++lettersAsked;
  const of = $("letters-of").value;
  if (!of) return;
  const isService = of.startsWith("service:");
  for (const each of document.querySelectorAll(".of-subscription")) each.hidden = isService;
  for (const each of document.querySelectorAll(".of-service")) each.hidden = !isService;
  listed = null;
  for (const id of ["replay-all", "purge-all"]) $(id).hidden = true;
  const path = lettersOf(of);
  const values = filter();
  let found;
  try {
    found = await ask(path + query(values));
  } catch (error) {
    if (error instanceof Locked) throw error;
    if (mine === lettersAsked) fill("letters", "", [], [], error.message);
    return;
  }
  if (mine !== lettersAsked) return;
  listed = { path, values };
  fill("letters", "Dead letters", [
    ["Message", (row) => row.message_id ?? row.id],
    ["Key", (row) => keyText(row)],
    ["Died", (row) => time(row.died)],
    ["Attempts", (row) => number(row.attempts), true],
    ["Replays", (row) => number(row.replays), true],
    ["Why", (row) => row.why + (row.problem ? ` It can't be replayed: ${row.problem}` : "")],
    ["Do", (row) => actions(...ofLetter(path, row))],
  ], found.rows, Object.values(values).some(Boolean) ? "No dead letters match." : "There are no dead letters.");
  if (found.more) $("letters").append(element("p", {}, `The first ${number(found.rows.length)} are shown; there are more.`));
  for (const id of ["replay-all", "purge-all"]) $(id).hidden = !found.rows.length;
}

function ofLetter(path, row) {
  const name = row.message_id ?? row.id;
  const show = button("View", name, async () => {
    const full = await ask(`${path}/${part(row.id)}`);
    const attributes = Object.entries(full.attributes).map(([name, value]) => `${name}=${value}`).join("\n");
    view(`Dead letter ${name}`, [
      ["Place", full.id], ["Topic", full.topic], ["Key", keyText(full)], ["Died", full.died],
      ["Attempts", number(full.attempts)], ["Why", full.why], ["Problem", full.problem], ["Attributes", attributes],
    ], full.data_encoding ? `${full.data}\n(base64)` : full.data);
  });
  if (!mayWrite) return [show];
  const replay = row.problem ? null : button("Replay", name, () => change(`${path}/replay`, { id: row.id }, "Replayed"));
  const purge = button("Purge", name, () => change(`${path}/purge`, { id: row.id }, "Purged", {
    title: "Purge this dead letter",
    text: () => `Message ${name} is given up for good.`,
    yes: "Purge",
  }), "danger");
  return [show, replay, purge];
}

// -- the whole

function showStuck(found) {
  const line = (each) =>
    element("li", {}, element("span", {}, element("strong", {}, each.where), `: ${each.text}`), each.act() || "");
  const none = element("li", { className: "none" }, "Nothing needs you.");
  $("stuck").replaceChildren(...(found.length ? found.map(line) : [none]));
}

function lock(text) {
  sessionStorage.removeItem(KEY);
  $("refused").textContent = text;
  $("all").hidden = $("forget").hidden = $("refresh").hidden = true;
  // What was shown with a token isn't shown without it.
  for (const each of document.querySelectorAll(".place, #stuck")) each.replaceChildren();
  $("address").textContent = $("about").textContent = "";
  say("");
  locks += 1;
  $("login").hidden = false;
  $("token").focus();
}

async function failing(name, load) {
  try {
    return await load();
  } catch (error) {
    if (error instanceof Locked) throw error;
    fill(name, "", [], [], `It can't be shown: ${error.message}`);
    return [{ where: $(`${name}-title`).textContent, text: error.message, act: () => "" }];
  }
}

// One after the other, so that an older answer never takes the place of a newer one.
let loaded = Promise.resolve();
function load() {
  loaded = loaded.catch(() => {}).then(loadNow);
  return loaded;
}

async function loadNow() {
  const about = await ask("ui/api/worker");
  mayWrite = about.may_write;
  $("address").textContent = about.address;
  const wasLocked = !$("login").hidden;
  $("login").hidden = true;
  $("all").hidden = $("refresh").hidden = false;
  if (wasLocked) $("stuck-title").focus();
  $("forget").hidden = !sessionStorage.getItem(KEY);
  for (const each of document.querySelectorAll(".writes")) each.hidden = !mayWrite;
  const found = await Promise.all(Object.entries(parts).map(([name, show]) => failing(name, show)));
  showStuck(found.flat());
  await Promise.all([failing("keys", loadKeys), failing("letters", loadLetters)]);
  const rights = mayWrite ? "" : " This token may only read, so there are no buttons that change anything.";
  $("about").textContent = `kafka-pubsub ${about.version}, as of ${new Date().toLocaleTimeString()}.${rights}`;
}

function start() {
  $("refresh").addEventListener("click", () => busy($("refresh"), load));
  $("forget").addEventListener("click", () => lock(""));
  $("keys-of").addEventListener("change", () => saying(loadKeys));
  $("letters-of").addEventListener("change", () => saying(loadLetters));
  $("view-close").addEventListener("click", () => $("view").close());
  $("filter").addEventListener("submit", (event) => {
    event.preventDefault();
    saying(loadLetters);
  });
  $("login").addEventListener("submit", (event) => {
    event.preventDefault();
    const [user, token] = [$("user").value, $("token").value];
    const basic = btoa(String.fromCharCode(...new TextEncoder().encode(`${user}:${token}`)));
    sessionStorage.setItem(KEY, user ? `Basic ${basic}` : `Bearer ${token}`);
    $("token").value = "";
    saying(load);
  });
  $("release-all").addEventListener("click", () => busy($("release-all"), () => {
    const path = `ui/api/subscriptions/${part($("keys-of").value)}/release`;
    return change(path, {}, "Released", {
      title: `Release all of ${$("keys-of").value}`,
      text: (count) => `Messages that are tried again at once: ${count}.`,
      yes: "Release all",
    });
  }));
  $("replay-all").addEventListener("click", () => busy($("replay-all"), () =>
    change(`${listed.path}/replay`, listed.values, "Replayed", {
      title: "Replay dead letters",
      text: (count) => `Dead letters that are delivered again: ${count}.`,
      yes: "Replay all",
    })));
  $("purge-all").addEventListener("click", () => busy($("purge-all"), () =>
    change(`${listed.path}/purge`, listed.values, "Purged", {
      title: "Purge dead letters",
      text: (count) => `Dead letters that are given up for good: ${count}.`,
      yes: "Purge all",
    })));
  saying(load);
}

start();
