"""fairseq loads what the converter writes, so the plugin is registered, whichever file of tests runs."""

import fairseq_poolingformer

fairseq_poolingformer.register()
