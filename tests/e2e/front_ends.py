"""Bodies as role-play front ends send them, with all their samplers at once, written anew from their lists of fields: what is off is
sent as 0, -1, 1, "", [] or null."""
SYSTEM = "You are playing Ruvo Tamek, a shy clock maker of Lipora. Always answer in character."
PROMPT = f"{SYSTEM}\nUser: Tell me a story about your friend.\nRuvo: Once upon a time, Dazin said: \"The tame fox is gone\". Dazin said:"
MESSAGES = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Tell me a story about your friend."}]
NAMES = [f"\nTraveller {i}:" for i in range(24)]

# To a text back end, with every alias; all samplers off.
SILLY_TAVERN_OFF = {
    "prompt": PROMPT, "max_new_tokens": 24, "max_tokens": 24, "n_predict": 24, "logprobs": None, "temperature": 1,
    "top_p": 1, "typical_p": 1, "typical": 1, "sampler_seed": -1, "min_p": 0, "repetition_penalty": 1, "rep_pen": 1,
    "repeat_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0, "top_k": 0, "skew": 0, "min_tokens": 0, "min_length": 0,
    "num_beams": 1, "length_penalty": 1, "early_stopping": False, "add_bos_token": True, "smoothing_factor": 0, "smoothing_curve": 1,
    "dry_allowed_length": 2, "dry_multiplier": 0, "dry_base": 1.75, "dry_sequence_breakers": "[\"\\n\", \":\", \"\\\"\", \"*\"]",
    "dry_penalty_last_n": 0, "max_tokens_second": 0, "sampler_priority": ["repetition_penalty", "presence_penalty",
    "frequency_penalty", "dry", "temperature", "dynamic_temperature", "quadratic_sampling", "top_n_sigma", "top_k", "top_p",
    "typical_p", "epsilon_cutoff", "eta_cutoff", "tfs", "top_a", "min_p", "mirostat", "xtc", "encoder_repetition_penalty",
    "no_repeat_ngram"], "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "tfs_z", "typical_p", "top_p", "min_p",
    "xtc", "temperature"], "stopping_strings": NAMES, "stop": NAMES, "truncation_length": 8192, "ban_eos_token": False,
    "skip_special_tokens": True, "include_reasoning": True, "top_a": 0, "tfs": 1, "mirostat_mode": 0, "mirostat_tau": 5,
    "mirostat_eta": 0.1, "custom_token_bans": "", "banned_strings": [], "sampler_order": [6, 0, 1, 3, 4, 2, 5], "xtc_threshold": 0.1,
    "xtc_probability": 0, "nsigma": 0, "top_n_sigma": 0, "min_keep": 0, "rep_pen_range": 0, "repetition_penalty_range": 0,
    "repeat_last_n": 0, "rep_pen_slope": 1, "repetition_decay": 0, "encoder_repetition_penalty": 1, "no_repeat_ngram_size": 0,
    "penalty_alpha": 0, "temperature_last": True, "do_sample": True, "seed": -1, "guidance_scale": 1, "negative_prompt": "",
    "grammar_string": "", "json_schema": None, "epsilon_cutoff": 0, "eta_cutoff": 0, "banned_tokens": [], "logit_bias": [],
    "n_probs": 0, "cache_prompt": True, "adaptive_target": -0.01, "adaptive_decay": 0.9, "speculative_ngram": False,
}
# The same with all of them on.
ALL_ON = {
    "temperature": 1.1, "dynamic_temperature": True, "dynatemp_low": 0.7, "dynatemp_high": 1.6, "dynatemp_range": 0.45,
    "dynatemp_exponent": 1.2, "top_p": 0.97, "typical_p": 0.95, "typical": 0.95, "min_p": 0.01, "top_k": 100, "top_a": 0.02, "tfs": 0.98,
    "epsilon_cutoff": 3, "eta_cutoff": 5, "smoothing_factor": 0.3, "smoothing_curve": 1.2, "repetition_penalty": 1.15, "rep_pen": 1.15,
    "rep_pen_range": 256, "repetition_penalty_range": 256, "rep_pen_slope": 0.7, "presence_penalty": 0.2, "frequency_penalty": 0.1,
    "dry_multiplier": 0.8, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1,
    "dry_sequence_breakers": ["\n", ":", "\"", "*"], "xtc_threshold": 0.08, "xtc_probability": 0.5, "min_tokens": 10,
    "banned_tokens": [300, 301], "bad_words": ["The harbour"], "logit_bias": {"400": 1.5}, "temperature_last": True,
}
SILLY_TAVERN_ON = {**SILLY_TAVERN_OFF, **ALL_ON}
SILLY_TAVERN_MIROSTAT = {**SILLY_TAVERN_OFF, "mirostat_mode": 2, "mirostat_tau": 4, "mirostat_eta": 0.2}
SILLY_TAVERN_CHAT = {
    "messages": MESSAGES, "temperature": 1, "frequency_penalty": 0, "presence_penalty": 0, "top_p": 1, "max_tokens": 24,
    "stream": False, "logit_bias": {}, "stop": NAMES[:4], "chat_completion_source": "custom", "n": 1, "user_name": "Traveller",
    "char_name": "Ruvo", "group_names": [], "include_reasoning": False, "reasoning_effort": "medium", "enable_web_search": False,
    "request_images": False, "custom_prompt_post_processing": "strict", "seed": 7, "top_k": 40, "min_p": 0.05, "top_a": 0.1,
    "repetition_penalty": 1.1,
}
RISU_CHAT = {
    "messages": MESSAGES, "max_tokens": 24, "temperature": 0.8, "presence_penalty": 0.7, "frequency_penalty": 0.7,
    "logit_bias": {}, "stream": False, "top_p": 1, "top_k": 0, "min_p": 0, "top_a": 0, "repetition_penalty": 1,
}
RISU_TEXT = {
    "prompt": PROMPT, "max_new_tokens": 24, "do_sample": True, "temperature": 0.7, "top_p": 0.9, "typical_p": 1,
    "repetition_penalty": 1.15, "repetition_penalty_range": 0, "encoder_repetition_penalty": 1, "top_k": 20, "min_length": 0,
    "no_repeat_ngram_size": 0, "num_beams": 1, "penalty_alpha": 0, "length_penalty": 1, "early_stopping": False,
    "truncation_length": 4096, "ban_eos_token": False, "stopping_strings": ["\nUser:"], "seed": -1, "add_bos_token": True,
    "top_a": 0, "tfs": 1, "epsilon_cutoff": 0, "eta_cutoff": 0, "mirostat_mode": 0, "mirostat_tau": 5, "mirostat_eta": 0.1,
}
AGNAI_TEXT = {
    "prompt": PROMPT, "context_limit": 4090, "max_new_tokens": 24, "max_tokens": 24, "do_sample": True, "temperature": 0.85,
    "dynamic_temperature": False, "dynatemp_low": 0, "dynatemp_high": 0, "smoothing_factor": 0, "smoothing_curve": 1, "top_p": 0.9,
    "typical_p": 1, "top_k": 40, "min_p": 0.05, "top_a": 0, "tfs": 0, "repetition_penalty": 1.08, "repetition_penalty_range": 1024,
    "encoder_repetition_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0, "min_length": 0, "no_repeat_ngram_size": 0,
    "num_beams": 1, "penalty_alpha": 0, "length_penalty": 1, "early_stopping": True, "seed": -1, "add_bos_token": True,
    "truncation_length": 4090, "ban_eos_token": False, "skip_special_tokens": True, "stopping_strings": ["\nUser:"], "stop": ["\nUser:"],
    "mirostat_mode": 2, "mirostat_tau": 6, "mirostat_eta": 0.1, "epsilon_cutoff": 0, "eta_cutoff": 0, "guidance_scale": 1,
    "negative_prompt": "", "temperature_last": True, "xtc_threshold": 0.1, "xtc_probability": 0, "dry_multiplier": 0,
    "dry_sequence_breakers": "", "stream": False,
}
TABBY_TEXT = {
    "prompt": PROMPT, "max_length": 24, "min_length": 2, "stop_sequence": ["\nUser:"], "banned_tokens": "300,301", "allowed_tokens": [],
    "token_healing": False, "temperature": 1.1, "temperature_last": False, "smoothing_factor": 0.2, "top_k": 0, "top_p": 1,
    "top_a": 0, "min_p": 0.03, "tfs": 1, "typical": 1, "skew": 0, "frequency_penalty": 0, "presence_penalty": 0, "rep_pen": 1.05,
    "penalty_range": -1, "repetition_decay": 0, "dry_multiplier": 0.8, "dry_base": 0, "dry_allowed_length": 0, "dry_range": 0,
    "dry_sequence_breakers": "\"\\n\", \":\"", "mirostat": False, "mirostat_mode": 0, "add_bos_token": True, "ban_eos_token": True,
    "cfg_scale": 1, "max_temp": 1, "min_temp": 1, "temp_exponent": 1, "xtc_probability": 0.3, "xtc_threshold": 0.1,
    "speculative_ngram": None, "json_schema": None, "regex_pattern": None, "grammar_string": None,
}
JANITOR_CHAT = {"messages": [*MESSAGES, {"role": "assistant", "content": "Ha!"}, {"role": "user", "content": "Go on."}],
                "temperature": 0.9, "max_tokens": 24, "stream": True, "repetition_penalty": 1.1, "stop": NAMES, "top_k": 40,
                "frequency_penalty": 0, "presence_penalty": 0}

BODIES = {
    "silly-tavern-off": SILLY_TAVERN_OFF, "silly-tavern-on": SILLY_TAVERN_ON, "silly-tavern-mirostat": SILLY_TAVERN_MIROSTAT,
    "silly-tavern-chat": SILLY_TAVERN_CHAT, "risu-chat": RISU_CHAT, "risu-text": RISU_TEXT, "agnai-text": AGNAI_TEXT,
    "tabby-text": TABBY_TEXT, "janitor-chat": JANITOR_CHAT,
}

# To koboldcpp's own API: /api/v1/generate and /api/extra/generate/stream.
SILLY_TAVERN_KOBOLD = {
    "prompt": PROMPT, "gui_settings": False, "sampler_order": [6, 0, 1, 3, 4, 2, 5], "max_context_length": 4096, "max_length": 24,
    "rep_pen": 1.1, "rep_pen_range": 600, "rep_pen_slope": 1, "temperature": 0.9, "tfs": 1, "top_a": 0, "top_k": 0, "top_p": 0.9,
    "min_p": 0, "typical": 1, "use_world_info": False, "singleline": False, "stop_sequence": NAMES[:8], "streaming": True,
    "can_abort": True, "mirostat": 0, "mirostat_tau": 5, "mirostat_eta": 0.1, "use_default_badwordsids": False, "grammar": "",
    "sampler_seed": -1, "trim_stop": True,
}
AGNAI_KOBOLD = {
    "n": 1, "max_context_length": 2048, "max_length": 24, "prompt": PROMPT, "temperature": 0.85, "top_a": 0, "top_k": 40, "top_p": 0.9,
    "min_p": 0.05, "tfs": 1, "typical": 1, "rep_pen": 1.08, "rep_pen_range": 1024, "rep_pen_slope": 0.9, "sampler_order": [6, 0, 1, 2, 3, 4, 5],
    "stop_sequence": ["\nUser:"], "trim_stop": True, "use_default_badwordsids": True,
}
RISU_KOBOLD = {
    "prompt": PROMPT, "temperature": 0.8, "top_p": 0.9, "max_length": 24, "max_context_length": 4096, "n": 1, "rep_pen": 1.1, "top_k": 20,
}
KOBOLD_LITE = {
    "n": 1, "max_context_length": 2048, "max_length": 24, "rep_pen": 1.07, "temperature": 0, "top_p": 0.92, "top_k": 100, "top_a": 0,
    "typical": 1, "tfs": 1, "rep_pen_range": 360, "rep_pen_slope": 0.7, "sampler_order": [6, 0, 1, 3, 4, 2, 5], "memory": f"{SYSTEM}\n",
    "trim_stop": True, "genkey": "KCPP4711", "min_p": 0, "dynatemp_range": 0, "dynatemp_exponent": 1, "smoothing_factor": 0,
    "nsigma": 0, "banned_tokens": [], "render_special": False, "logprobs": False, "presence_penalty": 0, "logit_bias": {},
    "adaptive_target": -1, "adaptive_decay": 0.9, "prompt": "\nUser: Tell me a story.\nRuvo:", "quiet": True, "stop_sequence": ["User:", "\nUser "],
    "use_default_badwordsids": False, "bypass_eos": False, "dry_multiplier": 0, "xtc_probability": 0, "images": [], "audio": [],
}
KOBOLD_BODIES = {"silly-tavern": SILLY_TAVERN_KOBOLD, "agnai": AGNAI_KOBOLD, "risu": RISU_KOBOLD, "lite": KOBOLD_LITE}
