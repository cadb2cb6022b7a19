"""Jobs: one resumable pass over the rows of a file, in shards, on this machine or on Ray.

`rewards score`, `rewards rerank` and `rewards tifa-bench` are thin users of it; each brings a `Task`.

- sources/: files of rows, read by position; index.py: which rows make which item, and which items which shard
- task.py: `Task` and `Worker`, what is done with rows; cells.py: values of a row as a reward takes them
- job.py: `Job`: start, shards committed by rename, resume; manifest.py: whose folder it is
- guarded.py: a reward in a job, and when to give it up; rewards.py: what a job must know of a reward's settings
- engine.py, ray_engine.py: who does the work
- report.py: how many rows were scored, abstained or failed; file_output.py: a job whose output is one file
- score.py: `rewards score`; tifa_bench.py: `rewards tifa-bench`
"""
