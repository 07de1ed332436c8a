# A right answer, by which an audit tries the checks.
printf 'candidate\n' > answer.txt
