#!/bin/bash
# SPDX-License-Identifier: MIT
# A tiny language model tuned, resumed, talked to and exported; and what is wrong with files, named.
# Usage: chat_tune_test.sh CHAT_TUNE WRITE_LANGUAGE_MODEL
write_model=$(realpath "$2")
source "$(dirname "$0")/command_line.sh"

"$write_model" model.gguf || complain "no model"
# The answer to a letter is the letter twice.
for i in {0..59}; do
  x=$(printf "\\$(printf '%03o' $((97 + i * 7 % 26)))")
  printf '[{"role": "user", "content": "%s%d"}, {"role": "assistant", "content": "%s%s"}]\n' "$x" $((i % 5)) "$x" "$x"
done >talk.jsonl
# with OPTION VALUE...: sets `run` to a usual run, with other values of some options, and more of them.
with() {
  local -A usual=([--model]=model.gguf [--data]=talk.jsonl [--context]=48 [--batch]=2 [--rank]=4 [--lr]=2e-2
                  [--threads]=2 [--held-out]=0.2)
  while [ $# -gt 0 ]; do usual[$1]=$2; shift 2; done
  run=(tune)
  local option
  for option in "${!usual[@]}"; do run+=("$option" "${usual[$option]}"); done
}

# value NAME FILE: of the last line of a log.
value() { tail -n 1 "$2" | grep -oE "\"$1\":[^,}]*" | head -n 1 | cut -d: -f2; }

with --steps 24 --micro 2 --budget 60% --tolerance 0 --match 3 --evaluate-every 8 --out tuned.safetensors --log whole.jsonl \
  --save whole.ckpt --report page.html
"$program" "${run[@]}" >out 2>err || complain "tune: $(cat err)"
for words in 'documents   ' 'plan        budget' 'before      held-out loss' 'of 3 answers' 'after       held-out loss' 'resident'; do
  grep -qF "$words" out || complain "'$words' is not in $(cat out)"
done
[ "$(wc -l <whole.jsonl)" -eq 25 ] || complain "$(wc -l <whole.jsonl) lines of log"
awk "BEGIN { exit !($(value held_out_after whole.jsonl) < 0.7 * $(value held_out_before whole.jsonl)) }" ||
  complain "a held-out loss of $(value held_out_after whole.jsonl), before $(value held_out_before whole.jsonl)"
grep -q '<svg' page.html || complain "a page without a picture"
# Stopped and resumed, it goes on bit for bit. Plans follow times, which differ: without loss they have the same bits.
with --steps 24 --micro 2 --budget 60% --tolerance 0 --save half.ckpt --log half.jsonl --save-every 10
"$program" "${run[@]}" >out 2>err &
tuning=$!
until [ -e half.ckpt ] || ! kill -0 $tuning 2>/dev/null; do sleep 0.01; done
kill -KILL $tuning 2>/dev/null
wait $tuning 2>/dev/null
"$program" "${run[@]}" --resume half.ckpt >out 2>err || complain "resume: $(cat err)"
cmp <(grep grad_norm whole.jsonl | sed 's/"ms":[^}]*//') <(grep grad_norm half.jsonl | sed 's/"ms":[^}]*//') ||
  complain "a run that was resumed differs"

# Talk: the same words for the same seed, greedy or drawn, with what was tuned.
talk() { "$program" talk --model model.gguf --threads 1 --context 80 --tokens 12 "$@" 2>err || complain "talk: $(cat err)"; }
talk --prompt k2 >before
talk --prompt k2 --adapter tuned.safetensors >after
cmp -s before after && complain "tuned, it says the same: $(cat after)"
cmp <(talk --prompt k2 --temperature 1 --top-p 0.9 --seed 4) <(talk --prompt k2 --temperature 1 --top-p 0.9 --seed 4) ||
  complain "one seed, two answers"
"$program" talk --model model.gguf --weights nf4 --prompt k2 >out 2>err && complain "rows of 32 in nf4"
grep -q 'no matrix' err || complain "rows of 32 in nf4: $(cat err)"
"$program" talk --model model.gguf --weights int3 --prompt k2 >out 2>err && complain "weights in int3"
grep -q -- '--weights' err || complain "weights in int3: $(cat err)"
printf 'k2\nb1\n' | talk >read
[ "$(wc -l <read)" -ge 2 ] || complain "two lines, and: $(cat read)"
cmp <(head -n 1 read) <(head -n 1 before) || complain "lines are read in other words than prompts"
long=$(printf 'a%.0s' {1..70})
"$program" talk --model model.gguf --context 80 --prompt "$long" >out 2>err && complain "a full context"
grep -q 'context of 80 tokens' err || complain "a full context: $(cat err)"
printf '%s\nb\nc\nd\n' "${long:10}" | talk --forget >out
[ "$(wc -l <out)" -ge 4 ] || complain "a context that forgets: $(cat out)"

# refuses_run WORDS... -- OPTION VALUE...: refuses() a usual run with these options.
refuses_run() {
  local words=()
  while [ "$1" != -- ]; do words+=("$1"); shift; done
  shift
  with "$@"
  refuses "${words[@]}" -- "${run[@]}"
}

# What is exported is a model of the Hub.
"$program" export --model model.gguf --adapter tuned.safetensors --out merged >out 2>err || complain "export: $(cat err)"
[ -s merged/model.safetensors ] && grep -q '"llama"' merged/config.json || complain "nothing exported"
"$program" export --model model.gguf --adapter tuned.safetensors --out merged.gguf --type F32 >out 2>err ||
  complain "export: $(cat err)"
cmp after <("$program" talk --model merged.gguf --threads 1 --context 80 --tokens 12 --prompt k2 2>err) ||
  complain "merged, it says something else: $(cat err)"
"$program" export --model model.gguf --adapter tuned.safetensors --out lora.gguf --adapters >out 2>err ||
  complain "export: $(cat err)"
[ -s lora.gguf ] || complain "no adapters exported"
refuses --adapters gguf -- export --model model.gguf --adapter tuned.safetensors --out merged --adapters
refuses model.gguf another -- export --model model.gguf --adapter tuned.safetensors --out model.gguf

sed '3s/"role"/role/' talk.jsonl >bad.jsonl
refuses_run "line 3" "column 3" -- --data bad.jsonl
sed '4s/"content": "[a-z]*"/"content": 5/' talk.jsonl >bad.jsonl
refuses_run "line 4" "message 1" content -- --data bad.jsonl
sed '5s/"user"/"teacher"/' talk.jsonl >bad.jsonl
refuses_run "line 5" teacher -- --data bad.jsonl
echo '{"role": "user"}' >bad.jsonl
refuses_run "line 1" messages -- --data bad.jsonl
{ cat talk.jsonl; printf '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "%s"}]}\n' "$long"; } >long.jsonl
refuses_run "line 61" "--long cut" -- --data long.jsonl --long refuse
with --data long.jsonl --steps 1
"$program" "${run[@]}" >out 2>err || complain "cut: $(cat err)"
grep -q '1 cut to a sequence' out || complain "nothing cut: $(cat out)"
cat talk.jsonl >text.txt
with --data text.txt --steps 1
"$program" "${run[@]}" >out 2>err || complain "a text: $(cat err)"
refuses_run "--budget" -- --budget 0%
refuses_run smallest "1.0 KiB" -- --budget 1KiB
refuses_run total -- --total 10KiB
refuses_run "model's context of 96" -- --context 97
refuses_run nowhere.gguf -- --model nowhere.gguf
refuses_run nowhere.jsonl -- --data nowhere.jsonl
refuses_run --template -- --template vicuna
refuses_run --out "no folder" -- --out nowhere/x.safetensors
refuses_run "would replace" -- --out model.gguf
refuses_run rank -- --rank 33
head -c 2000 model.gguf >short.gguf
refuses short.gguf -- talk --model short.gguf --prompt x
refuses subcommand --
finish
