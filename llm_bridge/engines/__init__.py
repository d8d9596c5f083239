"""The rules on engines that span machines; each module needs its engine installed.

`trl`: a trainer on TRL's GRPO trainer (extra "trl").  Nothing here is loaded before it is asked
for.
"""
