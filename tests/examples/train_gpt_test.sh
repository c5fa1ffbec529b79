#!/usr/bin/env bash
# train_gpt as a user meets it: every bad input gets one clear line and status 2, nothing is left
# half-written, and a run that is killed and resumed gives the losses of one that was not.
source "$(dirname "$0")/command_line.sh" "$1"
train_gpt=$program

small=(--layers 1 --heads 2 --channels 16 --context 16 --batch 2 --threads 2 --seed 3)

# word FILE N VALUE: overwrites 32-bit word N of FILE.
word() {
  printf "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($3 & 255)) $(($3 >> 8 & 255)) \
    $(($3 >> 16 & 255)) $(($3 >> 24 & 255)))" | dd of="$1" bs=4 seek="$2" conv=notrunc status=none
}

# --- files that are no models -------------------------------------------------------------------
# A model of 1 layer, 1 head, 4 channels, context 4, vocabulary 8: 32 + 16 + 4*2 + 48 + 12 + 16 + 4
# + 4*2 + 64 + 16 + 64 + 4 + 4*2 = 300 zeros.
head -c $((1024 + 4 * 300)) /dev/zero >model
i=0
for value in 20240326 3 4 8 1 1 4 8; do word model $i $value; i=$((i + 1)); done
head -c $((1024 + 2 * 40)) /dev/zero >tokens
word tokens 0 20240520; word tokens 1 1; word tokens 2 40
"$train_gpt" --model model --tokens tokens --batch 2 --steps 2 >out 2>err ||
  complain "a good model and good tokens: $(cat err)"

refuses nothere 'No such file' -- --model nothere
refuses folder -- --model .
cp model bad; word bad 0 7; refuses bad 20240326 -- --model bad
cp model bad; word bad 1 5; refuses bad 'version 5' -- --model bad
head -c 2000 model >bad; refuses bad truncated -- --model bad
head -c 100 model >bad; refuses bad truncated -- --model bad
cp model bad; word bad 300 2143289344; refuses bad NaN -- --model bad --tokens tokens --batch 1
cp model bad; word bad 6 0; refuses bad channels -- --model bad
cp model bad; word bad 4 2147483647; word bad 6 2147483644; refuses bad -- --model bad
cp model bad; word bad 5 3; refuses bad heads -- --model bad
refuses model leave -- --model model --layers 2
refuses tokens 'llm.c token file' -- --model tokens

# --- files that are no tokens -------------------------------------------------------------------
refuses nothere -- "${small[@]}" --tokens nothere
cp tokens bad; word bad 0 1; refuses bad 20240520 -- "${small[@]}" --tokens bad
cp tokens bad; word bad 1 2; refuses bad 'version 2' -- "${small[@]}" --tokens bad
head -c 1050 tokens >bad; refuses bad truncated -- "${small[@]}" --tokens bad
cp tokens bad; word bad 257 70000; refuses bad token vocabulary -- --model model --tokens bad --batch 2
refuses tokens 'at least' -- "${small[@]}" --tokens tokens --batch 8
: >empty; refuses empty 'is empty' -- "${small[@]}" --text empty
mkdir nofiles; refuses nofiles 'no files' -- "${small[@]}" --text nofiles
refuses nothere -- "${small[@]}" --text nothere

# --- options --------------------------------------------------------------------------------------
refuses --seq 17 16 -- "${small[@]}" --seq 17
refuses --heads 3 --channels 16 -- --layers 1 --heads 3 --channels 16
refuses --layers -- --layers 0
refuses --channels -- --channels 99999999999999999999
refuses --batch -- --batch 0
refuses --steps -- --steps -1
refuses --policy auto retain recompute int8 int4 tolerated mixed -- --policy best
refuses --budget suffix -- --budget 5
refuses --budget GiB -- --budget 7XB
refuses --budget -- --budget -1MiB
refuses --budget -- --budget 0%
refuses --budget decimal -- --budget 0x10MiB
refuses --budget unit -- --budget 30%%
refuses --tolerance -- --tolerance -1
refuses --threads -- --threads 0
refuses --lr -- --lr -1
refuses --nonsense -- --nonsense
refuses 'warm-up' -- "${small[@]}" --steps 5 --warmup 5 --min-lr 0.0001
refuses '' -- --layers 4096 --heads 1 --channels 1048576 --context 1048576 --batch 1048576
refuses 'more than the machine' -- --layers 4000 --heads 4 --channels 8192 --context 16 --batch 1
refuses --log nowhere/log -- "${small[@]}" --log nowhere/log --steps 1
refuses --log -- "${small[@]}" --log /dev/full --steps 1
refuses nowhere -- "${small[@]}" --save nowhere/checkpoint --steps 1

# --- auto -----------------------------------------------------------------------------------------
cat "$train_gpt" | head -c 300000 >text
refuses budget smallest limited -- "${small[@]}" --text text --budget 1B
refuses nowhere -- "${small[@]}" --text text --report nowhere/report.html --steps 1
planned=("${small[@]}" --layers 3 --channels 32 --context 32 --batch 4 --text text --steps 12)
"$train_gpt" "${planned[@]}" --budget 60% --profile costs --log auto.jsonl --report auto.html \
  --save auto >out 2>err || complain "auto: $(cat err)"
grep -q 'measured in .*written to costs' out || complain "auto does not say what it measured: $(cat out)"
# What is kept was probed; the errors of the reference model carry twice as much through recomputation.
awk '/^layer 7 gelu/ { seen = 1; assumed = $9 * 2 == $10 } END { exit !seen || assumed }' costs ||
  complain "the profile holds errors that were not probed: $(grep '^layer 7' costs)"
peak=$(sed -n 's/.*measured *\([0-9]*\) bytes.*/\1/p' out)
retain=$(sed -n 's/.*would have needed *\([0-9]*\) bytes.*/\1/p' out)
predicted=$(sed -n 's/.*predicted *\([0-9]*\) bytes.*/\1/p' out)
[ "$peak" = "$predicted" ] && [ $((peak * 100)) -le $((retain * 60)) ] ||
  complain "auto used $peak bytes, predicted $predicted, of $retain"
[ "$(grep -c '"plan_version":' auto.jsonl)" -eq 12 ] || complain "the log has no plan_version"
grep -q '</html>' auto.html || complain "the report is cut off"
grep -q 'Predicted and measured' auto.html || complain "the report does not compare"
# A second run reads the profile; one of another model is refused, measured anew, and said so.
"$train_gpt" "${planned[@]}" --budget 60% --profile costs >out 2>err || complain "auto again: $(cat err)"
grep -q 'read from costs' out || complain "the profile was not read: $(cat out)"
"$train_gpt" "${planned[@]}" --layers 2 --budget 70% --profile costs >out 2>err ||
  complain "auto with another model's profile: $(cat err)"
grep -q 'measured in .*costs.*written' out || complain "another model's profile: $(cat out)"
head -c 100 costs >cut && mv cut costs
"$train_gpt" "${planned[@]}" --budget 60% --profile costs >out 2>err || complain "a cut profile: $(cat err)"
grep -q 'measured in .*written' out || complain "a cut profile was taken: $(cat out)"
# Resumed without --policy, the plan of the checkpoint is taken up.
"$train_gpt" "${planned[@]}" --resume auto --steps 14 >out 2>err || complain "resuming auto: $(cat err)"
[ "$(sed -n 's/.*measured *\([0-9]*\) bytes.*/\1/p' out)" = "$peak" ] ||
  complain "the checkpoint of auto lost its plan"
# All of the budget: nothing is measured, everything retained.
"$train_gpt" "${planned[@]}" >out 2>err || complain "auto without a budget: $(cat err)"
[ "$(sed -n 's/.*measured *\([0-9]*\) bytes.*/\1/p' out)" = "$retain" ] ||
  complain "auto without a budget does not retain: $(cat out)"

# --- checkpoints ----------------------------------------------------------------------------------
cat "$train_gpt" | head -c 300000 >text
run=("$train_gpt" "${small[@]}" --text text --policy mixed --lr 0.01 --warmup 4 --min-lr 0.001 --clip 1)
"${run[@]}" --steps 40 --log whole.jsonl --save whole >out 2>err || complain "a whole run: $(cat err)"
[ "$(wc -l <whole.jsonl)" -eq 40 ] || complain "the log has other than 40 lines"
losses() { sed 's/"ms".*//' "$1"; }

# Killed at some moment and resumed, again and again.
for wait in 0.05 0.1 0.2 0.3; do
  resume=()
  [ -f part ] && resume=(--resume part)
  "${run[@]}" --steps 40 --log part.jsonl --save part --save-every 3 "${resume[@]}" >out 2>err &
  sleep "$wait"
  kill -9 $! 2>/dev/null
  wait $! 2>/dev/null
done
resume=()
[ -f part ] && resume=(--resume part)
"${run[@]}" --steps 40 --log part.jsonl --save part "${resume[@]}" --threads 1 >out 2>err ||
  complain "resuming: $(cat err)"
cmp -s <(losses whole.jsonl) <(losses part.jsonl) || complain "a resumed run's losses differ"
cmp -s whole part || complain "a resumed run's last checkpoint differs"

# A resumed run without --policy takes up the plan of the checkpoint.
"$train_gpt" --text text --batch 2 --resume whole --steps 41 --threads 2 >out 2>err ||
  complain "resuming from the checkpoint's own shape and plan: $(cat err)"
mixed=$(sed -n 's/.*predicted *\([0-9]*\) bytes.*/\1/p' out)
retain=$(sed -n 's/.*would have needed *\([0-9]*\) bytes.*/\1/p' out)
[ -n "$mixed" ] && [ "$mixed" -lt "$retain" ] || complain "the checkpoint's plan was not taken up"
measured=$(sed -n 's/.*measured *\([0-9]*\) bytes.*/\1/p' out)
[ "$measured" = "$mixed" ] || complain "measured $measured bytes, predicted $mixed"

refuses whole layers -- --layers 2 --heads 2 --channels 16 --context 16 --text text --resume whole
head -c 1000 whole >bad; refuses bad truncated -- "${small[@]}" --text text --resume bad
cp whole bad; word bad 100 12345; refuses bad checksum -- "${small[@]}" --text text --resume bad
refuses model adacc -- "${small[@]}" --text text --resume model

# A disk that fills while saving: the old checkpoint survives, and nothing else is left behind.
cp whole full
(
  trap '' XFSZ
  ulimit -f 8
  "$train_gpt" "${small[@]}" --text text --resume full --steps 44 --save full
) >out 2>err
[ $? -eq 2 ] || complain "saving to a full disk exits with other than 2"
[ "$(wc -l <err)" -eq 1 ] && grep -q full err || complain "a full disk: $(cat err)"
cmp -s whole full || complain "the old checkpoint did not survive a full disk"
[ "$(ls | grep -c '^full')" -eq 1 ] || complain "a half-written file is left: $(ls)"

# A loss that is not finite stops the run before it spoils the parameters or the checkpoint.
cp whole last
"$train_gpt" "${small[@]}" --text text --resume last --steps 80 --lr 1e6 --weight-decay 1e6 \
  --save last >out 2>err
[ $? -eq 1 ] || complain "a loss that is not finite exits with other than 1"
grep -q 'stopped before the update' err || complain "a loss that is not finite: $(cat err)"
cmp -s whole last || complain "the last good checkpoint was replaced"

# Piped, the output is plain lines; --sample gives the bytes asked for.
"$train_gpt" "${small[@]}" --text text --steps 2 --sample 20 --val text >out 2>err
[ ! -s err ] || complain "a good run wrote to standard error: $(cat err)"
grep -q $'\x1b' out && complain "escape sequences in piped output"
grep -q 'val loss' out || complain "no validation loss"
explains model layers heads channels context tokens text batch seq steps lr weight-decay clip \
    warmup min-lr seed threads policy budget tolerance profile report log save save-every resume sample val val-every

finish
