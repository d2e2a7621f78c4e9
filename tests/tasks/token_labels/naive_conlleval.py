"""conlleval's counts, word by word, by the rules of the script of the shared tasks of 2000 to 2003."""


def ends(former, former_kind, tag, kind):
    if former in "ES" or (former == "B" and tag in "BSO") or (former == "I" and tag in "BSO"):
        return True
    return former != "O" and former_kind != kind


def begins(former, former_kind, tag, kind):
    if tag in "BS" or (former in "ESO" and tag in "EI"):
        return True
    return tag != "O" and former_kind != kind


def counts(sentences):
    """Right, found and true entities of [(gold labels, predicted labels)] of sentences: totals, and by kind."""
    right, found, there = {}, {}, {}
    last = [("O", ""), ("O", "")]
    is_right = False
    for gold, predicted in [pair for sentence in sentences for pair in [*zip(*sentence, strict=True), ("O", "O")]]:
        now = [(label[0], label[2:]) for label in (gold, predicted)]
        ended, begun = ([rule(*last[k], *now[k]) for k in (0, 1)] for rule in (ends, begins))
        if is_right:
            if all(ended) and last[0][1] == last[1][1]:
                right[last[0][1]] = right.get(last[0][1], 0) + 1
                is_right = False
            elif ended[0] != ended[1] or now[0][1] != now[1][1]:
                is_right = False
        if all(begun) and now[0][1] == now[1][1]:
            is_right = True
        for counter, k in ((there, 0), (found, 1)):
            if begun[k]:
                counter[now[k][1]] = counter.get(now[k][1], 0) + 1
        last = now
    return right, found, there
