"""English function words that a mechanism may be told to keep: a public list, fixed by the package.

Articles, pronouns, prepositions, conjunctions, auxiliary verbs and particles, in the lower-case forms that
`text.read` gives: contractions are cut ("don't" is "do" and "n't").
"""

STOP_WORDS = frozenset(
    """
    a an the this that these those such
    i me my mine myself we us our ours ourselves you your yours yourself yourselves
    he him his himself she her hers herself it its itself they them their theirs themselves one oneself
    who whom whose which what whoever whatever whichever
    am is are was were be been being do does did doing done have has had having
    will would shall should can could may might must ought 's 're 've 'm 'll 'd n't not no nor
    and or but if because as until while although though since unless whereas whether than so yet either neither both
    of at by for with without within about against between among into through during before after above below to from
    up down in out on off over under upon toward towards per via around across along behind beside besides beyond
    again further then once here there when where why how
    all any each every few more most much many several some other another own same only just also too very
    """.split()
)
