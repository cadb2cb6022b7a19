#!/usr/bin/env bash
# Every figure about people's answers that the documents quote, one command each, into benchmarks/results/humans/.
#
#   bash benchmarks/humans_published.sh ../shared/data [NAME]
#
# The argument is the folder of the data (see each command's help for the files and where they come from); NAME runs one of them only.
set -euo pipefail
data=${1:?the folder of the data}
only=${2:-}
out=benchmarks/results/humans
mkdir -p "$out"

run() { # NAME COMMAND...: the command, the day, the versions, and what it prints
    local name=$1; shift
    if [ -n "$only" ] && [ "$only" != "$name" ]; then return 0; fi
    {
        echo "\$ rewards humans $*" | sed "s#$data#DATA#g"
        python -c "import platform, scipy, datetime; print(f'# {datetime.date.today()}, scipy {scipy.__version__}, Python {platform.python_version()}')"
        python -c "from rewards.cli import main; main()" humans "$@" 2>&1 | sed "s#$data#DATA#g"
    } > "$out/$name.txt"
    echo "$out/$name.txt"
}

run tifa tifa "$data/tifa/human_annotations_with_scores.json"
run dsg_mplug dsg "$data/dsg/vqa_mplug_dsg.csv" --ratings "$data/dsg/tifa160-likert-anns.csv"
run dsg_instructblip dsg "$data/dsg/vqa_instructblip_dsg.csv" --ratings "$data/dsg/tifa160-likert-anns.csv"
run captions_flickr8k captions flickr8k-ex "$data/fleur/flickr8k.json" --scores "$data/fleur/fleur_flickr8k_expert.txt" --resamples 300
run captions_pascal50s captions pascal50s "$data/fleur/pascal_50s.json" --references \
    --scores "$data/fleur/fleur_pascal_HC.txt" --scores "$data/fleur/fleur_pascal_HI.txt" --scores "$data/fleur/fleur_pascal_MM.txt"
run thumb thumb "$data/thumb/mscoco_THumB-1.0.jsonl"
run geneval geneval "$data/geneval/annotations_clip.csv" "$data/geneval/annotations_if-xl.csv" "$data/geneval/annotations_sdv2.csv" \
    --metadata "$data/geneval/evaluation_metadata.jsonl"
run pairs pairs "$data/vl_rewardbench/data.json"
