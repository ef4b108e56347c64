# Completion of `stormpetrel` for users in fish: commands, ids of the own jobs, files.
# Install: /usr/share/fish/vendor_completions.d/stormpetrel.fish

function __stormpetrel_words
    set -l words (commandline -opc)
    test "$words[2..-1]" = "$argv"
end

function __stormpetrel_ids
    stormpetrel jobs list --ids --limit 50 --timeout 1 2>/dev/null
end

complete -c stormpetrel -f
complete -c stormpetrel -n '__stormpetrel_words' -a 'alarms check digest jobs me tokens top waste why'
complete -c stormpetrel -n '__stormpetrel_words why' -a '(__stormpetrel_ids)'
complete -c stormpetrel -n '__stormpetrel_words jobs show' -a '(__stormpetrel_ids)'
complete -c stormpetrel -n '__stormpetrel_words alarms; or __stormpetrel_words jobs' -a 'list show'
complete -c stormpetrel -n '__stormpetrel_words tokens' -a 'create list revoke'
complete -c stormpetrel -n '__stormpetrel_words digest' -a 'on off'
complete -c stormpetrel -n 'contains -- check (commandline -opc)' -F
